"""An artefact's arguments: their leaves, the tensors among them, and the call as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_LONGEST = 400
_TAKEN = frozenset({"program", "model", "made", "torch"})


def leaves_of(value: Any) -> list[Any]:
    """What nested containers hold, in the order in which torch.export flattens them. Private API: `_pytree`."""
    from torch.utils import _pytree

    return list(_pytree.tree_leaves(value))


def by_path(arguments: Arguments) -> list[tuple[str, Any]]:
    """The leaves with their paths, as `[1]['mask']`. Private API: `_pytree`."""
    from torch.utils import _pytree

    return [(_pytree.keystr(path), leaf) for path, leaf in _pytree.tree_flatten_with_path(arguments)[0]]


def nested(leaves: list[Any], spec: Any) -> Arguments:
    """The reverse: `spec` is the tree of positional and keyword arguments, or its text."""
    from torch.utils import _pytree

    tree = _pytree.treespec_loads(spec) if isinstance(spec, str) else spec
    args, kwargs = _pytree.tree_unflatten(leaves, tree)
    return tuple(args), dict(kwargs)


def paths(arguments: Arguments) -> Iterator[tuple[str, Tensor]]:
    """The tensors, each as guards call it: `0`, `1.image`, `mask.0`."""
    args, kwargs = arguments
    for name, value in ({str(at): value for at, value in enumerate(args)} | kwargs).items():
        yield from _paths(value, name)


def _paths(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    import torch
    from torch.utils import _pytree

    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, Mapping):  # also those that are no containers to torch
        for key, entry in value.items():
            yield from _paths(entry, f"{name}.{key}")
        return
    for keys, leaf in _pytree.tree_flatten_with_path(value)[0]:
        path = ".".join((name, *map(_step, keys)))
        if isinstance(leaf, (torch.Tensor, Mapping)):
            yield from _paths(leaf, path)


def _step(key: Any) -> str:
    """An index, a key or a field's name."""
    return str(next((getattr(key, what) for what in ("idx", "key", "name") if hasattr(key, what)), key))


def identifier(name: str) -> str:
    """A name for a variable: `k_a` for `k.a`."""
    found = re.sub(r"\W+", "_", name).strip("_")
    return f"{found}_" if found in _TAKEN or not found.isidentifier() else found


def variables_of(names: Mapping[int, str]) -> dict[int, str]:
    """A variable for each of some names, by the same keys: `a[0]` and `a_0` have two."""
    found: dict[int, str] = {}
    for key, name in names.items():
        variable = identifier(name)
        while variable in found.values():
            variable += "_"
        found[key] = variable
    return found


def call_text(arguments: Arguments, variables: Mapping[int, str]) -> str | None:
    """What stands in the parentheses of a call, with variables by the id of tensors; None if it can't be written."""
    args, kwargs = arguments
    try:
        parts = [_text(value, variables) for value in args]
        parts += [f"{key}={_text(value, variables)}" for key, value in kwargs.items()]
    except _Unwritable:
        return None
    text = ", ".join(parts)
    return text if len(text) <= _LONGEST else None


class _Unwritable(Exception):
    pass


def _text(value: Any, variables: Mapping[int, str]) -> str:
    if id(value) in variables:
        return variables[id(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_text(entry, variables)}' for key, entry in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(_text(entry, variables) for entry in value)}]"
    if type(value) is tuple:
        return f"({', '.join(_text(entry, variables) for entry in value)}{',' if len(value) == 1 else ''})"
    raise _Unwritable
