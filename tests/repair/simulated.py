"""A machine whose times are computed: the same verdicts on every run, from what a step really does.

An operator costs what it reads and writes; strided operands cost four times as much, as a stand-in for copies inside
operators and for slow kernels. A convolution costs half in channels_last. Nothing of it claims to be a real machine.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stridewise.measure.statistics import Interval
from stridewise.measure.timing import Timed, compare
from stridewise.repair.trial.bench import Timer

STRIDED = 4
LAUNCH = 50


class Costs(TorchDispatchMode):
    """Adds up what operators cost."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        storages = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        if any(tensor.untyped_storage().data_ptr() not in storages for tensor in outputs):  # else a view
            self.total += LAUNCH + sum(map(_cost, inputs)) + sum(tensor.numel() for tensor in outputs)
            if "convolution" in str(func) and not any(map(_is_channels_last, inputs)):
                self.total += 9 * sum(prod(tensor.shape) for tensor in inputs if tensor.dim() == 4)
        return result


def _cost(tensor: Tensor) -> float:
    dense = tensor.is_contiguous() or _is_channels_last(tensor)
    return tensor.numel() * (1 if dense else STRIDED)


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


class _Arm:
    def __init__(self, nanoseconds: int, clock: "_Clock") -> None:
        self.nanoseconds = nanoseconds
        self._clock = clock

    def enter(self) -> None:
        pass

    def run(self) -> int:
        self._clock.now += self.nanoseconds / 1e9
        return self.nanoseconds


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class SimulatedTimer(Timer):
    """Runs each arm once for its cost, and has all the time in the world."""

    def __call__(
        self, before: Any, after: Any, deadline: float, on_pair: Callable[[int, Interval | None], None] | None
    ) -> Timed:
        clock = _Clock()
        arms = [_Arm(self._simulated(arm), clock) for arm in (before, after)]
        return compare(arms[0], arms[1], clock=clock, deadline=1e9, progress=on_pair)

    def _simulated(self, arm: Any) -> int:
        arm.enter()
        with Costs() as costs:
            arm.run()
        return round(1000 * costs.total)
