"""Columns of stretches of time, and which of them lie in which. No torch.

A trace has millions of them: columns are `array`s, whose entries are plain integers, and numpy looks at them in place.
"""

from array import array
from collections.abc import Hashable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

Column: TypeAlias = "array[int]"


class Numbers(dict[Any, int]):
    """Numbers things in the order in which they are first asked for."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number


def integers(column: Column) -> Any:
    """A column as numpy sees it, without a copy."""
    kind = np.int64 if column.typecode == "q" else np.int32
    return np.frombuffer(column, kind) if column else np.empty(0, kind)  # numpy refuses an empty buffer


def column(values: Any, typecode: str) -> Column:
    """A column from numpy's integers."""
    return array(typecode, values.astype(np.int64 if typecode == "q" else np.int32).tobytes())


def order_of(thread: Column, start_ns: Column, end_ns: Column) -> Any:
    """The positions of rows by thread, start, and the longer first; None if that is how they lie."""
    if len(thread) < 2:
        return None
    order = np.lexsort((-integers(end_ns), integers(start_ns), integers(thread)))
    return None if bool((order[1:] > order[:-1]).all()) else order


def taken(values: Column, order: Any) -> Column:
    """A column's entries in another order."""
    return column(integers(values)[order], values.typecode)


DEEPEST = 1000
"""How deep rows may lie in each other: Python's own limit of frames. What lies deeper counts as lying this deep."""


def nest(thread: Column, start_ns: Column, end_ns: Column, deepest: int = DEEPEST) -> tuple[Any, list[Any]]:
    """Of rows in order: the row that each lies in (-1: none), and the rows of each depth, from the outside in.

    A row lies as deep as there are earlier ones on its thread that have not ended when it starts. That is how many
    came before it less how many have ended, which needs no walk over the rows.
    """
    threads, starts = integers(thread), integers(start_ns)
    ends = np.maximum(integers(end_ns), starts + 1)  # one without a length does not end before it starts
    depth = np.zeros(len(threads), np.int64)
    edges = [0, *(np.flatnonzero(threads[1:] != threads[:-1]) + 1).tolist(), len(threads)]
    for first, last in pairwise(edges):
        ended = np.searchsorted(np.sort(ends[first:last]), starts[first:last], side="right")
        depth[first:last] = np.minimum(np.arange(last - first) - ended, deepest)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[by_depth], prepend=-1, append=-2)).tolist()
    levels = [by_depth[begin:end] for begin, end in pairwise(bounds)]
    parent = np.full(len(threads), -1, np.int64)
    for above, level in pairwise(levels):
        place = np.searchsorted(above, level) - 1
        found = np.where(place >= 0, above[np.maximum(place, 0)], -1)
        parent[level] = np.where(threads[found] == threads[level], found, -1)  # rows that overlap have no such parent
    return parent, levels
