"""Figures in what these rules say."""


def size(count: float) -> str:
    """A number of bytes: `1.2 kB`."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{_figure(count)} {unit}"
        count /= 1000
    return f"{_figure(count)} GB"


def duration(nanoseconds: float) -> str:
    """A time: `8.2 ms`."""
    for unit, length in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= length:
            return f"{_figure(nanoseconds / length)} {unit}"
    return f"{_figure(nanoseconds)} ns"


def factor(ratio: float) -> str:
    """`13x`, `1.4x`."""
    return f"{_figure(ratio)}x"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 or value == int(value) else f"{value:.1f}"
