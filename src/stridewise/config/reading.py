"""Values as people write them in pyproject.toml and on the command line: tables, codes, quantities."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from math import isfinite
from typing import Any, NamedTuple

from stridewise.errors import UsageError


class Key(NamedTuple):
    """What a key of a table may hold."""

    field: str
    """That it sets."""
    read: Callable[[Any], Any]
    takes: str
    """What may be written, in words."""


Keys = Mapping[str, Key]
"""What a table may hold."""

MOST = 1_000_000_000
"""The largest whole number that a setting or an option takes: of steps, operators, processes."""
_QUANTITY = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*(\D*)", re.IGNORECASE | re.ASCII)
_CODE = re.compile(r"SW\d{0,3}", re.ASCII)


def parse_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Read codes, or beginnings of codes, of which a text may hold several with commas. Raises `UsageError`."""
    found: dict[str, None] = {}
    for text in codes:
        # A text without any is a variable that is empty, or a slip: it would ask for nothing at all.
        for code in [part.strip() for part in text.split(",") if part.strip()] or [text]:
            if not _CODE.fullmatch(code.upper()):
                raise UsageError(f"`{code}` is no code: a code reads SW101, and SW1 stands for all that begin with it")
            found[code.upper()] = None
    return tuple(found)


def is_wanted(code: str, select: Collection[str] | None, ignore: Collection[str] | None) -> bool:
    """Whether a finding is reported: its code begins with one of `select`, if there are any, and none of `ignore`."""
    return not code.startswith(codes_of(ignore)) and (not select or code.startswith(codes_of(select)))


def codes_of(given: Collection[str] | None) -> tuple[str, ...]:
    """Codes as they are compared: a text is one, or several with commas. Raises `UsageError`."""
    return parse_codes([given] if isinstance(given, str) else given or ())


def parse_share(value: object) -> float:
    """Read a share: a percentage (`2%`), or a fraction from 0 to 1. Raises `UsageError`."""
    share = quantity({"": 1, "%": Decimal("0.01")}, "a percentage such as 2%, or a fraction such as 0.02")(value)
    if share > 1:
        raise UsageError(f"`{value}` is more than a whole step: a share is a percentage such as 2%, or a fraction")
    return share


def read_table(table: object, keys: Keys, where: str, elsewhere: Mapping[str, str] = {}) -> dict[str, Any]:
    """Give the fields that a table sets. Raises `UsageError` for a key that it does not have.

    `elsewhere` says of some keys which table has them.
    """
    if not isinstance(table, dict):
        raise UsageError(f"{where} is a table, not {table!r}")
    fields = {}
    for key, value in table.items():
        if key not in keys:
            meant = key.replace("_", "-").lower()
            near = get_close_matches(meant, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(keys)}"
            hint = elsewhere.get(meant, hint)
            raise UsageError(f"{where} has no key `{key}`: {hint}")
        known = keys[key]
        try:
            fields[known.field] = known.read(value)
        except UsageError as error:
            raise UsageError(f"{key}: {error.given}", expected=error.expected) from None
        except ValueError:  # Python writes no number of thousands of digits, and hexadecimal ones are read
            raise UsageError(f"{key}: the number has too many digits") from None
    return fields


def quantity(units: Mapping[str, int | Decimal], expected: str) -> Callable[[object], float]:
    """Make a reader of numbers with one of some units; it raises `UsageError`."""
    folded = {name.lower(): factor for name, factor in units.items()}

    def read(value: object) -> float:
        text = str(value).strip().replace("\N{GREEK SMALL LETTER MU}", "µ")
        match = _QUANTITY.fullmatch(text) if isinstance(value, str | int | float) and value is not True else None
        if match is None or match[2].strip().lower() not in folded:
            raise UsageError(f"`{value}` is not {expected}")
        # Decimal, because 1.1 * 10**6 is not 1100000 in binary.
        written = Decimal(match[1])
        number = float(written * folded[match[2].strip().lower()])
        if not isfinite(number) or (written and not number):
            raise UsageError(f"`{value}` is not {expected}")
        return number

    return read


def count(least: int) -> Callable[[object], int]:
    """Make a reader of whole numbers up to `MOST`; it raises `UsageError`."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= MOST:
            raise UsageError(f"{value!r} is not a whole number from {least} to {MOST:_}")
        return value

    return read


def flag(value: object) -> bool:
    """Read true or false. Raises `UsageError`."""
    if not isinstance(value, bool):
        raise UsageError(f"{value!r} is not true or false")
    return value


def name(value: object) -> str:
    """Read a text that is not empty. Raises `UsageError`."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{value!r} is not a name")
    return value


def read_codes(value: object) -> tuple[str, ...]:
    """Read codes, or beginnings of codes, as a list or a text. Raises `UsageError`."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f'{value!r} is not a list of codes such as ["SW101", "SW3"]')
    return parse_codes(texts)
