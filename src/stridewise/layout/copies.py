"""What a copy between two layouts does, and what it moves."""

from __future__ import annotations

from math import prod
from typing import Literal

from stridewise.layout.memory import is_expanded, is_gapped, memory_order, stored
from stridewise.layout.model import Layout

Change = Literal["materialize", "reorder", "pack", "unpack"]


def is_relayout(sizes: tuple[int, ...], source_strides: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Tell whether a copy changes the layout: strides differ on a dimension of size > 1, and there are elements."""
    if 0 in sizes:
        return False
    return any(
        size > 1 and source != destination
        for size, source, destination in zip(sizes, source_strides, strides, strict=True)
    )


def change(sizes: tuple[int, ...], source_strides: tuple[int, ...], strides: tuple[int, ...]) -> Change | None:
    """Name what a copy from `source_strides` to `strides` does to the layout; None when it changes nothing.

    The first that holds of: `materialize` (the source has stride 0), `reorder` (the memory orders differ),
    `pack` (the source has gaps), `unpack` (only the destination has gaps). A source whose elements overlap
    without stride 0 (`unfold`, `as_strided`) and that has the destination's order is a `pack` too: what
    comes out is dense, what went in was not.
    """
    if not is_relayout(sizes, source_strides, strides):
        return None
    source, destination = Layout(sizes, source_strides), Layout(sizes, strides)
    if is_expanded(source):
        return "materialize"
    if memory_order(source) != memory_order(destination):
        return "reorder"
    if is_gapped(source) or not is_gapped(destination):
        return "pack"
    return "unpack"


def bytes_moved(
    sizes: tuple[int, ...],
    source_strides: tuple[int, ...],
    source_itemsize: int,
    strides: tuple[int, ...],
    itemsize: int,
) -> int:
    """Count bytes that a copy reads and writes: elements read × `source_itemsize` + elements written × `itemsize`.

    An element that is read more than once, through stride 0 or in windows that overlap, counts once as read: it stays
    in cache.
    """
    return stored(Layout(sizes, source_strides)) * source_itemsize + prod(sizes) * itemsize
