"""The classes of a layout, and the name that is shown."""

from __future__ import annotations

from typing import Literal

from stridewise.layout.formats import is_contiguous
from stridewise.layout.memory import is_expanded, is_gapped, is_non_overlapping_and_dense
from stridewise.layout.model import Layout
from stridewise.layout.overlap import is_overlapping

LayoutClass = Literal[
    "contiguous", "channels_last", "channels_last_3d", "permuted", "expanded", "overlapping", "gapped"
]


def classes(layout: Layout) -> tuple[LayoutClass, ...]:
    """List all classes that hold of a layout, the one that names it first. There is always one.

    `permuted` is dense in an order that no memory format has. `overlapping` holds of each expanded layout too.
    """
    found: list[LayoutClass] = []
    if is_contiguous(layout):
        found.append("contiguous")
    if is_contiguous(layout, "channels_last"):
        found.append("channels_last")
    if is_contiguous(layout, "channels_last_3d"):
        found.append("channels_last_3d")
    if found:
        return tuple(found)
    if is_non_overlapping_and_dense(layout):
        return ("permuted",)
    if is_expanded(layout):
        found.append("expanded")
    if is_overlapping(layout):
        found.append("overlapping")
    if is_gapped(layout):
        found.append("gapped")
    return tuple(found)


def name(layout: Layout) -> LayoutClass:
    """Name a layout by the first class that holds of it."""
    return classes(layout)[0]
