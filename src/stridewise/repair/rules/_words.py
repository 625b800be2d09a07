"""Figures in what these rules say."""


def duration(nanoseconds: float) -> str:
    """`8.2 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{_figure(nanoseconds / size)} {unit}"
    return f"{_figure(nanoseconds)} ns"


def factor(ratio: float) -> str:
    """`13x`, `1.4x`."""
    return f"{_figure(ratio)}x"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
