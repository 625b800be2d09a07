"""Where a strided tensor probably comes from in a trace that has no lineage: the last view with its strides."""

from bisect import bisect_left
from collections import defaultdict
from functools import lru_cache

import msgspec

from stridewise.analysis.functions import VIEWS
from stridewise.recording.trace import OpArgs, Trace, is_sizes

_VIEW = "aten::as_strided"
"""What every view that changes strides ends in, with the sizes and strides that it makes as its arguments."""

Key = tuple[int, tuple[tuple[int, int], ...]]


class Views:
    """The views of a trace, by what they make.

    A trace names no tensors. But views write down the strides that they make, elementwise operators keep them, and a
    copy has them as its source's: the last view before a copy, on its thread, that made these sizes and strides is
    probably what the copied tensor comes from. Size-1 dimensions and the order of dimensions do not count, since views
    inside operators change both.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._found: dict[Key, list[tuple[int, int]]] | None = None

    def behind(self, op: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
        """The operator whose view a copy with this source probably reads; None if there was none.

        Views that the program did not ask for, as those inside `aten::matmul`, do not count.
        """
        ops = self.trace.ops
        made = self._views().get((ops.thread[op], _moving(sizes, strides)), [])
        outermost = min(ops.around(op))
        # What the copying operator does itself is no origin.
        place = bisect_left(made, (ops.start_ns[outermost], -1))
        return made[place - 1][1] if place else None

    def _views(self) -> dict[Key, list[tuple[int, int]]]:
        if self._found is None:
            self._found = defaultdict(list)
            ops = self.trace.ops
            for index in ops.named(_VIEW):
                made = _made(ops.args[index])
                view = min(ops.around(index))
                if made is not None and ops.text(view).removeprefix("aten::") in VIEWS:
                    self._found[ops.thread[index], _moving(*made)].append((ops.start_ns[index], view))
        return self._found


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
    return tuple(sorted((size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1))
