"""What layout may cost: budgets.

A budget has one grammar, for the command line, pytest, trainers and pyproject.toml:

    copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101

Every limit is per step. `bytes` takes B, kB, MB, GB, TB and KiB, MiB, GiB, TiB, or a bare number of bytes; `share` a
percentage or a fraction; `time` ns, us, µs, ms or s. `forbid` may be repeated; `SW1` stands for all codes that
begin with it. In `[tool.stridewise.budget]` each part is a key of its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from stridewise.config.reading import Key, Keys, parse_share, quantity, read_codes, read_table
from stridewise.errors import UsageError
from stridewise.findings import Finding
from stridewise.results import Report

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NANOSECONDS = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}

_GRAMMAR = "a budget reads copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101"


class Budget(Struct, frozen=True):
    """What layout may cost in one step. A limit that is None is not set."""

    copies: float | None = None
    """The copies that layout causes: `totals.copies` of a report."""
    bytes_moved: float | None = None
    """The bytes that they read and write: `totals.bytes_moved`."""
    share: float | None = None
    """Their time as a share of what `totals.share_of` says: a step on the CPU, a device's busy time there."""
    duration_ns: float | None = None
    """Their time: `totals.duration_ns`."""
    forbid: tuple[str, ...] = ()
    """These are codes that no finding may have."""

    def exceeded(self, report: Report) -> tuple[str, ...]:
        """Say for each limit that is not kept what was measured: one line a limit, none when all are kept.

        A limit on a figure that was not measured, or of a part of a step only, is not kept: nobody knows whether it is.
        """
        totals = report.totals
        if not totals.whole:
            return self._exceeded_in_part(report)
        lines = [
            _excess("copies", self.copies, totals.copies, {"": 1}),
            _excess("bytes", self.bytes_moved, totals.bytes_moved, _BYTES),
            _excess("share", self.share, totals.share, {"%": 0.01}, per=f"of {totals.share_of}"),
            _excess("time", self.duration_ns, totals.duration_ns, _NANOSECONDS),
        ]
        findings = (*report.findings, *(report.compiled.findings if report.compiled is not None else ()))
        return (*(line for line in lines if line), *self.forbidden(findings))

    def _exceeded_in_part(self, report: Report) -> tuple[str, ...]:
        whole = msgspec.structs.replace(report, totals=msgspec.structs.replace(report.totals, whole=True))
        lines: list[str] = []
        for limit in self._each():
            over = limit.exceeded(whole)
            key, _, value = str(limit).partition("=")
            what = f"{key}: not known{f' of {value}' if key == 'forbid' else ''}"
            lines += over or [f"{what}, as the recording ended before its step was over"]
        return tuple(lines)

    def _each(self) -> Iterator["Budget"]:
        """Its limits one by one."""
        for field in ("copies", "bytes_moved", "share", "duration_ns"):
            if (limit := getattr(self, field)) is not None:
                yield Budget(**{field: limit})
        for code in self.forbid:
            yield Budget(forbid=(code,))

    def forbidden(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """Say for each code that is not allowed where it was found: one line a code."""
        findings, lines = tuple(findings), []
        for code in self.forbid:
            places = list(dict.fromkeys(f.site.where for f in findings if f.code.startswith(code)))
            if places:
                shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
                lines.append(f"forbid: {code} found at {shown}")
        return tuple(lines)

    def __str__(self) -> str:
        limits = (
            ("copies", self.copies, ""),
            ("bytes", self.bytes_moved, "B"),
            ("share", self.share, "%"),
            ("time", self.duration_ns, "ns"),
        )
        parts = [f"{key}={_exact(limit, unit)}" for key, limit, unit in limits if limit is not None]
        return ",".join(parts + (["forbid=" + "+".join(self.forbid)] if self.forbid else []))


def parse_budget(text: str) -> Budget:
    """Read a budget; `str(budget)` is a text that reads as the same budget again: an empty one sets no limit.

    Raises `UsageError`.
    """
    values: dict[str, Any] = {}
    forbid: list[str] = []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if text.strip() and not parts:
        raise UsageError(f"budget `{text}`: it has no limit", expected=_GRAMMAR)
    for part in parts:
        given, equals, value = (piece.strip() for piece in part.partition("="))
        key = given.lower()
        if not equals or not value:
            raise UsageError(f"budget `{text}`: `{part}` has no value", expected=_GRAMMAR)
        if key == "forbid":
            forbid += value.split("+")
        elif key in values:
            raise UsageError(f"budget `{text}`: {key} is given twice", expected=_GRAMMAR)
        else:
            values[key] = value
    try:
        return Budget(**read_table({**values, "forbid": forbid}, BUDGET_KEYS, "a budget"))
    except UsageError as error:
        raise UsageError(f"budget `{text}`: {error.given}", expected=_GRAMMAR) from None


def read_budget(value: object) -> Budget:
    """Read a budget that somebody wrote: a text that sets a limit, or a table. Raises `UsageError`."""
    if not isinstance(value, str):
        return Budget(**read_table(value, BUDGET_KEYS, "budget"))
    if not value.strip():
        raise UsageError(f"budget `{value}`: it has no limit", expected=_GRAMMAR)
    return parse_budget(value)


def _forbid(value: object) -> tuple[str, ...]:
    return read_codes(value.split("+") if isinstance(value, str) else value)


BUDGET_KEYS: Keys = {
    "copies": Key("copies", quantity({"": 1}, "a number of copies"), "a number"),
    "bytes": Key(
        "bytes_moved",
        quantity({"": 1, **_BYTES, **_BINARY_BYTES}, "a number of bytes such as 1MB or 512KiB"),
        f"a number, of bytes or with {', '.join(_BYTES)} (thousands) or {', '.join(_BINARY_BYTES)} (of 1024)",
    ),
    "share": Key("share", parse_share, "a percentage such as 2%, or a fraction such as 0.02"),
    "time": Key(
        "duration_ns",
        quantity({**_NANOSECONDS, "us": 10**3}, "a time with its unit, such as 3ms or 500us"),
        f"a number with {', '.join(_NANOSECONDS)}, or us for µs",
    ),
    "forbid": Key("forbid", _forbid, "codes, or beginnings of codes, with + between them; in a table a list"),
}


# ------------------------------------------------------------------------------------------- from the structs to text


def _exact(limit: float, unit: str) -> str:
    """Write a limit so that it reads as the same number."""
    number = Decimal(repr(limit)) * (100 if unit == "%" else 1)
    return f"{int(number) if number == int(number) else number.normalize()}{unit}"


def _excess(
    name: str, limit: float | None, measured: float | None, units: Mapping[str, float], per: str = "a step"
) -> str:
    if limit is None or (measured is not None and measured <= limit):
        return ""
    if measured is None:
        return f"{name}: not measured in this recording; the budget allows {_figure(limit, units)} {per}"
    # Measured 1.0001 MB against 1 MB: as many digits as it takes to see the difference.
    for digits in (3, 5, 9, 17):
        found, allowed = _figure(measured, units, digits), _figure(limit, units, digits)
        if found != allowed:
            break
    return f"{name}: {found} {per}, the budget allows {allowed}"


def _figure(value: float, units: Mapping[str, float], digits: int = 3) -> str:
    unit = next((unit for unit, factor in reversed(list(units.items())) if value >= factor), next(iter(units)))
    scaled = value / units[unit]
    number = f"{scaled:.0f}" if scaled >= 10**digits else f"{scaled:.{digits}g}"
    return f"{number} {unit}".rstrip()
