"""The same program in eager mode, compiled, and compiled with other layouts, timed against each other in turn."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stridewise.compiled.capture import logged, without_caches
from stridewise.measure import timing
from stridewise.results.compiled import Arm, ArmName, Graph, of_one_call

LAYOUT_SETTINGS: Mapping[ArmName, dict[str, Any]] = {
    "layout optimization off": {"layout_optimization": False},
    "layout optimization forced on": {"layout_optimization": True, "force_layout_optimization": True},
}
"""Settings of `torch._inductor.config` for the arms; `TORCHINDUCTOR_LAYOUT_OPTIMIZATION` and
`TORCHINDUCTOR_FORCE_LAYOUT_OPT` are theirs in the environment."""


_SETTLING = 3
"""Calls after which nothing should be compiled any more."""


class Way(Struct, frozen=True):
    """One way to run the program."""

    name: ArmName
    run: Callable[[], Any] | None
    """None if it can't be run."""
    graphs: tuple[Graph, ...] | None
    failed: str | None = None


class _Timed:
    """An arm as `measure.timing` takes it."""

    def __init__(self, run: Callable[[], Any], wait: Callable[[], None]) -> None:
        self._run, self._wait = run, wait

    def enter(self) -> None:
        """Nothing is to be switched: all arms are there at once."""

    def run(self) -> int:
        """Nanoseconds of one call, with what it left running on a device."""
        start = time.perf_counter_ns()
        self._run()
        self._wait()
        return time.perf_counter_ns() - start


def measured(
    ways: list[Way], *, seconds: float, device: str, begin_again: Callable[[], None] = lambda: None
) -> tuple[Arm, ...]:
    """Every way against the first one: the ratio of times, what it launches, and what it allocates."""
    wait = _waiter(device)
    ways = [_settled(way, begin_again) for way in ways]
    first = ways[0]
    able = [way for way in ways[1:] if way.run is not None]
    arms = []
    for number, way in enumerate(ways):
        found = None
        if number and way.run is not None and first.run is not None and seconds > 0:
            deadline = time.monotonic() + seconds / max(len(able), 1)
            pair = _Timed(first.run, wait), _Timed(way.run, wait)
            found = timing.compare(*pair, clock=time.monotonic, deadline=deadline, seed=number).interval
        arms.append(
            Arm(
                name=way.name,
                ratio=found.ratio if found else None,
                low=found.low if found else None,
                high=found.high if found else None,
                kernels=_added(way.graphs, "kernels"),
                externs=_added(way.graphs, "externs"),
                copies=_added(way.graphs, "copies"),
                peak_bytes=peak_bytes(way.run, device) if way.run is not None else None,
                failed=way.failed,
            )
        )
    return tuple(arms)


def _settled(way: Way, begin_again: Callable[[], None]) -> Way:
    """The same without its run, if that is compiled again in each call: its time would be the compiler's."""
    if way.run is None or way.graphs is None:
        return way
    begin_again()
    with without_caches(), logged() as entries:
        for _ in range(_SETTLING):
            entries.clear()
            way.run()
    if not any(entry.kind == "dynamo_start" for entry in entries):
        return way
    return replace(
        way, run=None, failed="it is compiled again in each call, for something that changes from call to call"
    )


def _added(graphs: tuple[Graph, ...] | None, field: str) -> int | None:
    return None if graphs is None else sum(getattr(graph, field) for graph in of_one_call(graphs))


def _waiter(device: str) -> Callable[[], None]:
    """Waits for what was launched on a device."""
    import torch

    module = getattr(torch, device, None)
    synchronize = getattr(module, "synchronize", None)
    return synchronize if device != "cpu" and callable(synchronize) else lambda: None


def peak_bytes(run: Callable[[], Any], device: str) -> int | None:
    """The most bytes that one call has allocated at a time, beyond what was there; None where that can't be told."""
    import torch

    from stridewise.recorder.private import profiler_is_on

    module: Any = getattr(torch, device, None)
    if device != "cpu":
        if not hasattr(module, "max_memory_allocated"):
            return None
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        run()
        return int(module.max_memory_allocated() - before)
    if profiler_is_on():
        return None
    with _quiet():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            run()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            with open(path, encoding="utf-8", errors="replace") as file:
                events = json.load(file).get("traceEvents", [])
    changes = [event for event in events if event.get("name") == "[memory]" and "args" in event]
    now = most = 0
    for event in sorted(changes, key=lambda event: event.get("ts", 0)):
        now += int(event["args"].get("Bytes", 0))
        most = max(most, now)
    return most


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that the profiler writes to standard error when it starts first."""
    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        if before is None:
            del os.environ["KINETO_LOG_LEVEL"]
        else:
            os.environ["KINETO_LOG_LEVEL"] = before
