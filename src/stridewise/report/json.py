"""A report as JSON, in the versioned schema of `stridewise.results`."""

import re
from collections.abc import Collection
from typing import Any, TextIO

import msgspec

from stridewise.report import Table
from stridewise.results import Report


def render(report: Report, out: TextIO, *, tables: Collection[Table] = ()) -> None:
    """Write the report's fields; `autocast`, `copies`, `modules`, `paths` and `timeline` are there only when asked for.

    A list that was not asked for is left out, not empty: an empty one says that there are none.
    """
    fields = msgspec.structs.asdict(report)
    unwanted = {"autocast", "copies", "modules", "paths", "timeline"} - set(tables)
    unwanted |= {"compiled"} if report.compiled is None else set()
    out.write(dumps({key: value for key, value in fields.items() if key not in unwanted}))


def dumps(value: Any) -> str:
    r"""Encode with stable key order and in ASCII only, which every stream can carry and no terminal interprets."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name that is not UTF-8
        encoded = msgspec.json.encode(_wellformed(msgspec.to_builtins(value)))
    text = msgspec.json.format(encoded, indent=2).decode()
    # A runner of GitHub Actions obeys `##[…]` wherever it stands.
    return re.sub(r"[^\n -~]", _escaped, text).replace("##[", "\\u0023#[") + "\n"


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _wellformed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_wellformed(key): _wellformed(item) for key, item in value.items()}
    return [_wellformed(item) for item in value] if isinstance(value, list | tuple) else value
