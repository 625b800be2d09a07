"""Arguments and results as nests of containers: what lies in them, under which path. No torch."""

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

_DEPTH = 8
_MOST_ENTRIES = 1000


def leaves(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """What is no container, each with its path: `0`, `1.pixel_values`.

    Looked into are lists, tuples, dicts (outputs of transformers models are some) and dataclasses.
    """
    entries = _entries(value) if depth else None
    if entries is None:
        yield path, value
        return
    for key, entry in entries.items():
        yield from leaves(entry, _below(path, key), depth - 1)


def mapped(value: Any, change: Callable[[str, Any], Any], path: str = "", depth: int = _DEPTH) -> Any:
    """The same nest with other leaves; the very same containers where no leaf in them changes."""
    entries = _entries(value) if depth else None
    if entries is None:
        return change(path, value)
    new = {key: mapped(entry, change, _below(path, key), depth - 1) for key, entry in entries.items()}
    changed = {key: entry for key, entry in new.items() if entry is not entries[key]}
    return _rebuilt(value, new, changed) if changed else value


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _entries(value: Any) -> dict[Any, Any] | None:
    """What a container holds; None for what is none, or holds too much to be arguments."""
    if isinstance(value, (dict, UserDict)):
        found = dict(value)
    elif isinstance(value, (list, tuple)):
        found = dict(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    else:
        return None
    return found if len(found) <= _MOST_ENTRIES else None


def _rebuilt(value: Any, new: dict[Any, Any], changed: dict[Any, Any]) -> Any:
    if isinstance(value, tuple):
        return type(value)(*new.values()) if hasattr(value, "_fields") else type(value)(new.values())
    again = copy.copy(value)
    if isinstance(value, UserDict):
        again.data = dict(value.data)
    for key, entry in changed.items():
        if isinstance(value, (dict, UserDict, list)):
            again[key] = entry
        else:
            object.__setattr__(again, key, entry)
    return again
