"""What experiments run on. The rest of the lab doesn't know which device it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol


class Device(Protocol):
    """Where tensors lie, and how time is told there."""

    kind: str
    """`cpu` or `cuda`: what experiments decide by."""
    place: str
    """Where tensors are made."""

    def time(self, run: Callable[[], object], calls: int) -> float:
        """Nanoseconds of so many calls, all that they start included."""

    def wait(self) -> None:
        """Return when all that was started is done."""


class Processor:
    """The CPU, whose calls end when their work is done."""

    kind = "cpu"
    place = "cpu"

    def time(self, run: Callable[[], object], calls: int) -> float:
        """By the clock."""
        start = time.perf_counter_ns()
        for _ in range(calls):
            run()
        return time.perf_counter_ns() - start

    def wait(self) -> None:
        """Nothing is ever under way."""


class Gpu:
    """A CUDA or ROCm device, whose kernels are timed by events in their stream.

    Not run on a GPU yet: tests put events of their own in place of `cuda.Event`.
    """

    kind = "cuda"

    def __init__(self, cuda: Any, place: str = "cuda") -> None:
        self.cuda = cuda
        """`torch.cuda`, or what stands for it."""
        self.place = place

    def time(self, run: Callable[[], object], calls: int) -> float:
        """By two events of the current stream: idle time between launches counts, as in a program."""
        begin, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        self.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        self.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e6

    def wait(self) -> None:
        """For all streams."""
        self.cuda.synchronize()


def device(name: str) -> Device:
    """The device of this name. Raises UsageError if it is not there."""
    from stridewise.errors import UsageError

    if not isinstance(name, str):
        raise UsageError(f'The lab takes the name of a device, "cpu" or "cuda": not {name!r}.')
    if name == "cpu":
        return Processor()
    if name != "cuda":
        raise UsageError(f"The lab runs on cpu or cuda, and not on {name}.")
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: torch sees no GPU here.",
            advice="`stridewise doctor` says what this machine has; without --device the lab runs on the CPU.",
        )
    return Gpu(torch.cuda)
