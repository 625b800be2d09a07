"""How much memory a step holds at its peak, and how much its results keep."""

from typing import Any

import msgspec
import torch
from msgspec import Struct

from stridewise.recorder.profiling import profile_memory
from stridewise.repair.trial.workload import Workload


class Memory(Struct, frozen=True):
    """Bytes of tensors that a step adds to what is there when it begins."""

    peak: int
    kept: int
    """Still held when the step has ended, by what it returns."""


class _Args(Struct):
    total: int | None = msgspec.field(name="Total Allocated", default=None)
    change: int | None = msgspec.field(name="Bytes", default=None)
    kind: int | None = msgspec.field(name="Device Type", default=None)


class _Event(Struct):
    name: str = ""
    ts: float = 0
    args: Any = None


class _Trace(Struct):
    traceEvents: list[_Event]


def measure_memory(workload: Workload) -> Memory:
    """Run a step and watch what it allocates: by the profiler's memory events, on CUDA by the allocator's figures."""
    workload.prepare()
    workload.wait()
    if workload.devices:
        return _on_cuda(workload)
    return _of_trace(profile_memory(workload.run))


def _of_trace(text: bytes) -> Memory:
    held = peak = 0
    events = (event for event in msgspec.json.decode(text, type=_Trace).traceEvents if event.name == "[memory]")
    for event in sorted(events, key=lambda event: event.ts):
        args = msgspec.convert(event.args, _Args)
        if args.kind == 0 and args.change is not None:
            held += args.change
            peak = max(peak, held)
    return Memory(peak, held)


def _on_cuda(workload: Workload) -> Memory:
    before = sum(torch.cuda.memory_allocated(device) for device in workload.devices)
    for device in workload.devices:
        torch.cuda.reset_peak_memory_stats(device)
    output = workload.run()
    workload.wait()
    kept = sum(torch.cuda.memory_allocated(device) for device in workload.devices) - before
    peak = sum(torch.cuda.max_memory_allocated(device) for device in workload.devices) - before
    del output
    return Memory(peak, kept)
