"""Numbers as people read them: with a unit, and two or three significant digits."""

from collections.abc import Sequence

from stridewise.findings import NOT_MEASURED, Cost

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_NANOSECONDS = ("ns", "µs", "ms", "s")


def figure(value: float) -> str:
    """Write a number: `1,234`, `384`, `38`, `4.1`, `0.041`."""
    if value == 0:
        return "0"
    if abs(value) >= 9.95:
        return f"{value:,.0f}"
    # The exponent, so that 0.00001 does not become 1e-05.
    decimals = 1 - int(f"{value:.1e}".partition("e")[2])
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def count(value: float, noun: str, plural: str | None = None) -> str:
    """Write how many there are: `1 copy`, `26 copies`, `0.33 copies`."""
    return f"{figure(value)} {noun if figure(value) == '1' else plural or noun + 's'}"


def byte_count(value: float) -> str:
    """Write a number of bytes in decimal units: `38 MB`."""
    return _in_units(value, _BYTES)


def duration(nanoseconds: float) -> str:
    """Write a time: `1.2 ms`. Beyond seconds it stays in seconds."""
    return _in_units(nanoseconds, _NANOSECONDS)


def share(value: float) -> str:
    """Write a share as a percentage: `4.1 %`, and `< 0.01 %` rather than digits that nobody measured."""
    return f"{figure(100 * value)} %" if value == 0 or value >= 0.0001 else "< 0.01 %"


def cost(cost: Cost) -> str:
    """Write what was measured of a cost, without its share: `24 copies, 31 MB, 1.2 ms`."""
    if cost == NOT_MEASURED:
        return "not measured"
    parts = [count(cost.copies, "copy", "copies")] if cost.copies else []
    parts += [byte_count(cost.bytes_moved)] if cost.bytes_moved else []
    parts += [duration(cost.duration_ns)] if cost.duration_ns is not None else []
    return ", ".join(parts) or "no copy"


def _in_units(value: float, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        # As written: 999.7 kB would read as 1000 kB.
        if abs(value) < 999.5:
            return f"{figure(value)} {unit}"
        value /= 1000
    return f"{figure(value)} {units[-1]}"
