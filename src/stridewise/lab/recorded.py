"""What the recorder sees of one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from stridewise.analysis import analyze_trace
from stridewise.recording.trace import Trace
from stridewise.results.lab import Copied
from stridewise.results.report import Copy, Kind, Report


class Recorded:
    """One recorded call."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def report(self) -> Report:
        """All that stridewise says of it."""
        return analyze_trace(self.trace, min_share=0.0)

    @property
    def copies(self) -> Sequence[Copy]:
        """Those that are layout's doing: not the bias that `addmm` spreads over rows, nor a write into a slice."""
        return [copy for copy in self.report.copies if copy.taxed]

    @property
    def hidden(self) -> Sequence[Copy]:
        """Copies that nobody asked for."""
        return [copy for copy in self.copies if copy.kind != "explicit"]

    @property
    def by_kind(self) -> dict[Kind, Copied]:
        """How many of each kind, and the bytes that they move."""
        found: dict[Kind, Copied] = {}
        for copy in self.copies:
            known = found.get(copy.kind, Copied(0, 0))
            found[copy.kind] = Copied(known.copies + 1, known.bytes_moved + (copy.bytes_moved or 0))
        return found

    @cached_property
    def ops(self) -> list[str]:
        """Names of the operators that ran, in the order in which they began: `aten::linear`, `aten::addmm`, …"""
        return [op.name for op in self.trace.ops if op.name.startswith("aten::")]

    @property
    def kernels(self) -> list[str]:
        """Names of what ran on a device, in order; empty on the CPU."""
        return [event.name for event in self.trace.device_events]


def record_call(run: Callable[[], object]) -> Recorded:
    """Run it once under the recorder. Raises what it raises, and NestedRecording inside another recording."""
    from stridewise.recorder.live import record

    with record() as recording:
        run()
        recording.step()  # all of it is one step: else it would begin at the first module call
    return Recorded(recording.trace)
