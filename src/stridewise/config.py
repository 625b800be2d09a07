"""What a project asks for: `[tool.stridewise]` in its pyproject.toml, and budgets.

A budget has one grammar, for the command line, pytest, trainers and pyproject.toml:

    copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101

Every limit is per step. `bytes` takes B, kB, MB, GB, TB and KiB, MiB, GiB, TiB, or a bare number of bytes; `share` a
percentage or a fraction; `time` ns, us, µs, ms or s. `forbid` may be repeated; `SW1` stands for all codes that
begin with it. In `[tool.stridewise.budget]` each part is a key of its own.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import Struct

from stridewise.errors import InputError, UsageError
from stridewise.results import Report

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NANOSECONDS = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}

_GRAMMAR = "a budget reads copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101"
_QUANTITY = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*(\D*)", re.IGNORECASE | re.ASCII)
_CODE = re.compile(r"SW\d{0,3}", re.ASCII)


class Budget(Struct, frozen=True):
    """What layout may cost in one step. A limit that is None is not set."""

    copies: float | None = None
    bytes_moved: float | None = None
    share: float | None = None
    """0.02 is 2 %, of what the report's `share_of` says."""
    duration_ns: float | None = None
    forbid: tuple[str, ...] = ()
    """Codes that no finding may have, or beginnings of codes."""

    def exceeded(self, report: Report) -> tuple[str, ...]:
        """Say for each limit that is not kept what was measured: one line a limit, none when all are kept.

        A limit on a figure that was not measured is not kept: nobody knows whether it is.
        """
        totals = report.totals
        lines = [
            _excess("copies", self.copies, totals.copies, {"": 1}),
            _excess("bytes", self.bytes_moved, totals.bytes_moved, _BYTES),
            _excess("share", self.share, totals.share, {"%": 0.01}, per=f"of {totals.share_of}"),
            _excess("time", self.duration_ns, totals.duration_ns, _NANOSECONDS),
        ]
        for code in self.forbid:
            places = list(dict.fromkeys(f.site.where for f in report.findings if f.code.startswith(code)))
            if places:
                shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
                lines.append(f"forbid: {code} found at {shown}")
        return tuple(line for line in lines if line)

    def __str__(self) -> str:
        limits = (
            ("copies", self.copies, ""),
            ("bytes", self.bytes_moved, "B"),
            ("share", self.share, "%"),
            ("time", self.duration_ns, "ns"),
        )
        parts = [f"{key}={_exact(limit, unit)}" for key, limit, unit in limits if limit is not None]
        return ",".join(parts + (["forbid=" + "+".join(self.forbid)] if self.forbid else []))


class Config(Struct, frozen=True):
    """`[tool.stridewise]`, with defaults for what it does not say."""

    select: tuple[str, ...] = ()
    """Codes to report, or beginnings of codes; empty for all."""
    ignore: tuple[str, ...] = ()
    min_share: float = 0.001
    """Findings below this share of a step fold into one line."""
    steps: int = 3
    warmup: int = 2
    module_step: str | None = None
    library_copies: bool = False
    max_ops: int = 200_000
    budget: Budget = Budget()
    kernel_patterns: dict[str, str] = {}
    """Regular expressions for names of kernels that change layout, and their causes: see `results.Cause`."""


def load_config(start: Path | None = None) -> Config:
    """Read `[tool.stridewise]` of the nearest pyproject.toml, from `start` (else the current folder) upwards.

    Raises `InputError` for a file that is not TOML, an unknown key, or a value that cannot be meant.
    """
    file = _project_file(start)
    if file is None:
        return Config()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    try:
        return Config(**_read(_section(document), _KEYS, "[tool.stridewise]"))
    except UsageError as error:
        raise InputError(f"{file}: {error.given}", expected=error.expected) from None


def project_root(start: Path | None = None) -> Path:
    """The folder of the nearest pyproject.toml from `start` (else the current folder) upwards; without one, `start`."""
    file = _project_file(start)
    return file.parent if file is not None else (start or Path.cwd()).absolute()


def _project_file(start: Path | None) -> Path | None:
    folder = (start or Path.cwd()).absolute()
    candidates = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    return next((path for path in candidates if path.is_file()), None)


def parse_budget(text: str) -> Budget:
    """Read a budget; `str(budget)` is a text that reads as the same budget again. Raises `UsageError`."""
    values: dict[str, Any] = {}
    forbid: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UsageError(f"budget `{text}`: `{part}` has no value", expected=_GRAMMAR)
        if key == "forbid":
            forbid += value.split("+")
        elif key in values:
            raise UsageError(f"budget `{text}`: {key} is given twice", expected=_GRAMMAR)
        else:
            values[key] = value
    try:
        return Budget(**_read({**values, "forbid": forbid}, _BUDGET_KEYS, "a budget"))
    except UsageError as error:
        raise UsageError(f"budget `{text}`: {error.given}", expected=_GRAMMAR) from None


def parse_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Read codes, or beginnings of codes, of which a text may hold several with commas. Raises `UsageError`."""
    given = [code.strip() for text in codes for code in text.split(",") if code.strip()]
    for code in given:
        if not _CODE.fullmatch(code.upper()):
            raise UsageError(f"`{code}` is no code: a code reads SW101, and SW1 stands for all that begin with it")
    return tuple(dict.fromkeys(code.upper() for code in given))


def is_wanted(code: str, select: Collection[str] | None, ignore: Collection[str] | None) -> bool:
    """Whether a finding is reported: its code begins with one of `select`, if there are any, and none of `ignore`."""
    return not code.startswith(codes_of(ignore)) and (not select or code.startswith(codes_of(select)))


def codes_of(given: Collection[str] | None) -> tuple[str, ...]:
    """Codes as they are compared: a single text is one."""
    return tuple(code.upper() for code in ([given] if isinstance(given, str) else given or ()))


def parse_share(value: object) -> float:
    """Read a share: a percentage (`2%`), or a fraction from 0 to 1. Raises `UsageError`."""
    share = _quantity({"": 1, "%": Decimal("0.01")}, "a percentage such as 2%, or a fraction such as 0.02")(value)
    if share > 1:
        raise UsageError(f"`{value}` is more than a whole step: a share is a percentage such as 2%, or a fraction")
    return share


# -------------------------------------------------------------------------------- from keys and values to the structs


def _section(document: Mapping[str, Any]) -> object:
    tool = document.get("tool")
    return tool.get("stridewise", {}) if isinstance(tool, dict) else {}


def _read(table: object, keys: Mapping[str, tuple[str, Callable[[Any], Any]]], where: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is a table, not {table!r}")
    fields = {}
    for key, value in table.items():
        if key not in keys:
            near = get_close_matches(key.replace("_", "-").lower(), keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(keys)}"
            raise UsageError(f"{where} has no key `{key}`: {hint}")
        field, reader = keys[key]
        try:
            fields[field] = reader(value)
        except UsageError as error:
            raise UsageError(f"{key}: {error.given}") from None
    return fields


def _quantity(units: Mapping[str, int | Decimal], expected: str) -> Callable[[object], float]:
    folded = {name.lower(): factor for name, factor in units.items()}

    def read(value: object) -> float:
        text = str(value).strip().replace("\N{GREEK SMALL LETTER MU}", "µ")
        match = _QUANTITY.fullmatch(text) if isinstance(value, str | int | float) and value is not True else None
        if match is None or match[2].strip().lower() not in folded:
            raise UsageError(f"`{value}` is not {expected}")
        # Decimal, because 1.1 * 10**6 is not 1100000 in binary.
        number = float(Decimal(match[1]) * folded[match[2].strip().lower()])
        if not isfinite(number):
            raise UsageError(f"`{value}` is not {expected}")
        return number

    return read


def _count(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or value < least:
            raise UsageError(f"{value!r} is not a whole number from {least} on")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{value!r} is not true or false")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{value!r} is not a name")
    return value


def _codes(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f'{value!r} is not a list of codes such as ["SW101", "SW3"]')
    return parse_codes(texts)


def _forbid(value: object) -> tuple[str, ...]:
    return _codes(value.split("+") if isinstance(value, str) else value)


def _budget(value: object) -> Budget:
    return parse_budget(value) if isinstance(value, str) else Budget(**_read(value, _BUDGET_KEYS, "budget"))


def _patterns(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(cause, str) for cause in value.values()):
        raise UsageError(f'{value!r} is not a table such as {{ "my_transpose_.*" = "transpose" }}')
    return dict(value)


_BUDGET_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "copies": ("copies", _quantity({"": 1}, "a number of copies")),
    "bytes": ("bytes_moved", _quantity({"": 1, **_BYTES, **_BINARY_BYTES}, "a number of bytes such as 1MB or 512KiB")),
    "share": ("share", parse_share),
    "time": ("duration_ns", _quantity({**_NANOSECONDS, "us": 10**3}, "a time with its unit, such as 3ms or 500us")),
    "forbid": ("forbid", _forbid),
}

_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "select": ("select", _codes),
    "ignore": ("ignore", _codes),
    "min-share": ("min_share", parse_share),
    "steps": ("steps", _count(1)),
    "warmup": ("warmup", _count(0)),
    "module-step": ("module_step", _name),
    "library-copies": ("library_copies", _flag),
    "max-ops": ("max_ops", _count(1)),
    "budget": ("budget", _budget),
    "kernel-patterns": ("kernel_patterns", _patterns),
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
