"""What collate costs: the copies that it makes, and how long two ways to stack take."""

from __future__ import annotations

import functools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise.checks.rules.sw216 import Timed
from stridewise.checks.words import layout_of
from stridewise.layout import stored

if TYPE_CHECKING:
    from torch import Tensor

_MOST_RUNS = 5
_LONGEST_NS = 300_000_000
"""After this long no further pair of runs is begun."""


class Copy(Struct, frozen=True):
    """One call of an operator that made a copy of the same dtype."""

    op: str
    sizes: tuple[int, ...]
    """Sorted: a permuted view of a sample is still that sample."""
    dtype: str
    bytes_written: int


def collated(collate: Callable[[Any], Any], samples: Any) -> tuple[Any, tuple[Copy, ...]]:
    """The batch, and the copies that making it took beside those of `stack` and `cat`; raises what `collate` raises."""
    copies: list[Copy] = []
    with _counter()(copies):
        batch = collate(samples)
    return batch, tuple(copies)


def counted(copies: Sequence[Copy]) -> dict[str, int]:
    """How often each operator copied."""
    return dict(sorted(Counter(copy.op for copy in copies).items()))


def time_stacking(samples: Sequence[Tensor]) -> Timed:
    """Stack the samples as they are, and their channels-last views with the batch permuted back, in turn."""
    import torch

    def as_they_are() -> Tensor:
        return torch.stack(list(samples))

    def as_views() -> Tensor:
        return torch.stack([sample.movedim(0, -1) for sample in samples]).movedim(-1, 1)

    ways = as_they_are, as_views
    for way in ways:
        way()
    took: tuple[list[int], list[int]] = ([], [])
    begin = time.perf_counter_ns()
    while not took[0] or (len(took[0]) < _MOST_RUNS and time.perf_counter_ns() - begin < _LONGEST_NS):
        for way, times in zip(ways, took, strict=True):
            start = time.perf_counter_ns()
            way()
            times.append(max(time.perf_counter_ns() - start, 1))
    return Timed(statistics.median(took[0]), statistics.median(took[1]), len(took[0]))


@functools.cache
def _counter() -> Any:
    """The class of a mode that notes copies; made here, since torch is not to be imported before it is needed."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    operators = (aten.clone.default, aten._to_copy.default)
    """All that copies a tensor to new memory comes down to these; `copy_` may be how the batch is filled."""

    class CopyCounter(TorchDispatchMode):
        """Hands each operator on as it came."""

        supports_higher_order_operators = True

        def __init__(self, copies: list[Copy]) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._copies = copies

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in operators:
                source = args[0]
                given = layout_of(source)
                if given is not None and source.dtype == result.dtype:
                    name = func._schema.name.removeprefix("aten::")
                    written = stored(given) * source.element_size()
                    self._copies.append(Copy(name, tuple(sorted(given.sizes)), str(source.dtype), written))
            return result

    return CopyCounter
