"""A report that was saved with `--format json`, read back."""

import math
import os
import re
from typing import Any

import msgspec
from msgspec import Raw

from stridewise.errors import InputError
from stridewise.findings import Cost
from stridewise.recording.text import Text, opened
from stridewise.results import SCHEMA_VERSION, Fleet, Report

_MOST_TEXT = 256_000_000
"""Bytes of text after which a file is taken for a trap."""
_HEAD = 4096
_LARGEST = 2.0**63
"""No figure of ours is larger, and sums of larger ones might overflow."""

_OPTIONAL = ("copies", "kernels", "modules")
"""What is in the JSON only when asked for."""
_FIRST_KEY = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(\w+)"')


def load(path: str | os.PathLike[str]) -> Report | None:
    """Read a report from a file, zipped or not; None if the file holds something else, such as a trace.

    Raises InputError where it can't be read.
    """
    name = os.fspath(path)
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise InputError(f"{name} is a pipe, which can be read but once.", advice="Name a file.")
    with opened(path) as stream:
        text = Text(stream, name)
        head = text.read(_HEAD)
        if not is_report(head):
            return None
        content = head + text.read(_MOST_TEXT)
        if len(content) >= _MOST_TEXT:
            raise InputError(f"{name} holds more than {_MOST_TEXT // 10**6} MB of text: that is no report.")
        if text.broken is not None:
            raise InputError(f"{name} is no report that can be read: {text.broken}.")
    return read(content.removeprefix(b"\xef\xbb\xbf"), name)


def is_report(head: bytes) -> bool:
    """Whether a text is a report, by its beginning. No key of a report is one of a trace."""
    key = _FIRST_KEY.match(head)
    return key is not None and key[1].decode() in {*Report.__struct_fields__, *Fleet.__struct_fields__}


def read(content: bytes, name: str) -> Report:
    """Read a report's text; lists that were left out are empty. Raises InputError, which calls it `name`."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Raw])
        if "failures" in fields:
            raise InputError(f"{name} is a report on many files, which can't be compared: name that of one.")
        if "unread" in fields:
            raise InputError(f"{name} is what `stridewise lint` found, not a report on a recording.")
        version = msgspec.json.decode(fields.get("schema_version", b"null"))
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{name} is a report of schema version {version!r:.20}, and this stridewise reads {SCHEMA_VERSION}: "
                "make it again."
            )
        whole = {**{key: Raw(b"[]") for key in _OPTIONAL}, **fields}
        report = msgspec.json.decode(msgspec.json.encode(whole), type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} is no report that can be read: {str(error)[:200]}.") from None
    if not _is_possible(report):
        raise InputError(f"{name} is no report that can be read: it holds figures that cannot be.")
    return report


def _is_possible(report: Report) -> bool:
    totals = report.totals
    costs = [report.folded.cost, *(finding.cost for finding in report.findings)]
    costs += [payer.cost for finding in report.findings for payer in finding.payers]
    costs.append(Cost(totals.copies or 0, totals.bytes_moved or 0, totals.duration_ns, totals.share))
    figures = [figure for cost in costs for figure in msgspec.structs.astuple(cost) if figure is not None]
    figures += [finding.count for finding in report.findings] + [row.count for row in report.kernels]
    return totals.steps > 0 and min(figures) >= 0 and _fits(msgspec.to_builtins(report))


def _fits(value: Any) -> bool:
    if isinstance(value, int | float):
        return math.isfinite(value) and abs(value) <= _LARGEST
    if isinstance(value, dict):
        return all(map(_fits, value.values()))
    return all(map(_fits, value)) if isinstance(value, list | tuple) else True
