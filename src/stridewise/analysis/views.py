"""Where a strided tensor probably comes from in a trace that has no lineage: the last view with its strides."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import lru_cache

import msgspec

from stridewise.analysis.functions import VIEWS
from stridewise.layout import Layout, is_expanded, is_gapped, memory_order
from stridewise.recording.trace import OpArgs, Trace, is_sizes

_VIEW = "aten::as_strided"
"""What every view that changes strides ends in, with the sizes and strides that it makes as its arguments."""

Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides."""
_MOST_VIEWS = 8
"""How far a chain of views is followed."""


class Views:
    """The views of a trace, by what they make.

    A trace names no tensors. But views write down the strides that they make, elementwise operators keep them, and a
    copy has them as its source's: the last view before a copy, on its thread, that made these sizes and strides is
    probably what the copied tensor comes from. Size-1 dimensions do not count, since views inside operators drop them;
    nor does the order of dimensions, if no view made just this one.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._found: dict[Hashable, list[tuple[int, int]]] | None = None

    def behind(self, op: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
        """The operator whose view a copy with this source probably reads: the first of a chain of views out of order.

        None if there was none, or if the operator around the copy made the source itself. Views that the program did
        not ask for, as those inside `aten::matmul`, do not count.
        """
        ops = self.trace.ops
        outermost = min(ops.around(op))
        if not any(_moving(*given) == _moving(sizes, strides) for given in self._inputs(outermost)):
            return None
        view = self._last(ops.thread[op], outermost, (sizes, strides))
        for _ in range(_MOST_VIEWS):
            if view is None:
                break
            given = next(self._inputs(view), None)
            if given is None or _in_order(given):
                break
            before = self._last(ops.thread[op], view, given)
            if before is None:
                break
            view = before
        return view

    def _last(self, thread: int, before: int, made: Shape) -> int | None:
        """The last view on a thread before an operator that made sizes and strides."""
        for key in ((thread, _moving(*made)), (thread, tuple(sorted(_moving(*made))), "in any order")):
            found = self._views().get(key, [])
            place = bisect_left(found, (self.trace.ops.start_ns[before], -1))
            if place:
                return found[place - 1][1]
        return None

    def _inputs(self, op: int) -> Iterator[Shape]:
        for sizes, strides, _ in self.trace.ops.args[op].inputs:
            if strides is not None:
                yield sizes, strides

    def _views(self) -> dict[Hashable, list[tuple[int, int]]]:
        if self._found is None:
            self._found = defaultdict(list)
            ops = self.trace.ops
            for index in ops.named(_VIEW):
                made = _made(ops.args[index])
                view = min(ops.around(index))
                if made is not None and ops.text(view).removeprefix("aten::") in VIEWS:
                    moving, entry = _moving(*made), (ops.start_ns[index], view)
                    self._found[ops.thread[index], moving].append(entry)
                    self._found[ops.thread[index], tuple(sorted(moving)), "in any order"].append(entry)
        return self._found


def _in_order(shape: Shape) -> bool:
    given = Layout(*shape)
    order = memory_order(given)
    return order == tuple(sorted(order)) and not is_gapped(given) and not is_expanded(given)


def _made(args: OpArgs) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes and strides that `as_strided(input, size, stride, offset)` was asked for."""
    if len(args.concrete) < 3:
        return None
    sizes, strides = map(_integers, args.concrete[1:3])
    if sizes is None or strides is None or len(sizes) != len(strides):
        return None
    return sizes, strides


@lru_cache(4096)
def _integers(text: str) -> tuple[int, ...] | None:
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return tuple(values) if is_sizes(values) else None


def _moving(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1)
