"""Copies of a program, counted twice: by stridewise, and by hand over the event tree of a profiler run of its own."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

import stridewise
from stridewise.results import Copy

_ASKED_FOR = {"aten::clone", "aten::contiguous", "aten::reshape"}


@dataclass(frozen=True)
class TreeCopy:
    """An `aten::copy_` in the profiler's event tree."""

    sizes: tuple[int, ...]
    source_strides: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    below_clone: bool
    """Or below `contiguous` or `reshape`."""

    @property
    def is_relayout(self) -> bool:
        beyond_ones = [
            (source, destination)
            for size, source, destination in zip(self.sizes, self.source_strides, self.strides, strict=True)
            if size != 1
        ]
        return 0 not in self.sizes and any(source != destination for source, destination in beyond_ones)

    @property
    def written(self) -> int:
        return prod(self.sizes) * self.itemsize


@dataclass(frozen=True)
class Counts:
    """The copies of one run of a program."""

    reported: Sequence[Copy]
    tree: Sequence[TreeCopy]

    @property
    def relayouts(self) -> list[TreeCopy]:
        """What design.md calls a copy."""
        return [copy for copy in self.tree if copy.is_relayout]

    @property
    def written(self) -> int:
        """Bytes that stridewise's copies write."""
        return sum(copy.bytes_written for copy in self.reported)

    @cached_property
    def reported_layouts(self) -> Counter[tuple[Any, ...]]:
        return Counter((copy.sizes, copy.source_strides, copy.strides, copy.bytes_written) for copy in self.reported)

    @cached_property
    def tree_layouts(self) -> Counter[tuple[Any, ...]]:
        return Counter((copy.sizes, copy.source_strides, copy.strides, copy.written) for copy in self.relayouts)


def count(program: Callable[[], object]) -> Counts:
    """Run it three times: to warm up, for stridewise, for the profiler."""
    program()
    with stridewise.record() as recording:
        program()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        program()
    results = profiler.profiler
    assert results is not None
    tree = results.kineto_results.experimental_event_tree()
    return Counts(stridewise.analyze(recording).copies, list(_copies(tree, below_clone=False)))


def _copies(events: Any, below_clone: bool) -> Iterator[TreeCopy]:
    for event in events:
        is_op = event.typed[0] == _EventType.TorchOp
        if is_op and event.name == "aten::copy_":
            destination, source = event.typed[1].inputs[:2]
            if destination.sizes == source.sizes:
                yield TreeCopy(
                    tuple(destination.sizes),
                    tuple(source.strides),
                    tuple(destination.strides),
                    torch.empty(0, dtype=destination.dtype).element_size(),
                    below_clone,
                )
        yield from _copies(event.children, below_clone or (is_op and event.name in _ASKED_FOR))
