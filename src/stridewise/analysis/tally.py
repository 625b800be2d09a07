"""Adds up what copies cost, per step and as a share of it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stridewise.analysis.case import Case
from stridewise.findings import Cost
from stridewise.results import Totals

STEP_TIME = "step time"
KERNEL_TIME = "kernel-busy time"
LIBRARY_TIME = "time in oneDNN"
"""Of a log without times of day: how long the step took is not known."""


class Tally:
    """The figures of one recording. Everything it returns is per step."""

    def __init__(self, case: Case) -> None:
        self.case = case
        steps = case.trace.steps
        self.step_ns = sum(step.end_ns - step.start_ns for step in steps) / len(steps)
        self.busy_ns = _busy_ns(case)
        step_time = STEP_TIME if case.trace.has_wall_time else LIBRARY_TIME
        self.span_ns = max(self.step_ns, _device_span_ns(case))
        """A step's time on the CPU or on the devices, whichever is longer: these run ahead of each other."""
        self.share_of = KERNEL_TIME if self.busy_ns is not None else step_time

    def cost(self, copies: Sequence[int]) -> Cost:
        """Of these copies together. A copy on the CPU has no share of a device's time."""
        found = [self.case.copies[position] for position in copies]
        durations = [copy.duration_ns for copy in found if copy.duration_ns is not None]
        counted = (
            durations
            if self.busy_ns is None
            else [copy.duration_ns for copy in found if copy.on_device and copy.duration_ns is not None]
        )
        whole = self.step_ns if self.busy_ns is None else self.busy_ns
        duration = self.per_step(sum(durations)) if durations or not found else None
        moved = [copy.bytes_moved for copy in found if copy.bytes_moved is not None]
        return Cost(
            copies=self.per_step(len(found)),
            bytes_moved=self.per_step(sum(moved)) if moved or not found else None,
            duration_ns=duration,
            share=sum(counted) / self.case.steps / whole if duration is not None and whole else None,
        )

    def per_step(self, figure: int) -> float:
        """Divided by the number of steps; a whole number stays one."""
        return figure // self.case.steps if figure % self.case.steps == 0 else figure / self.case.steps

    def totals(self) -> Totals:
        """The layout tax."""
        case = self.case
        tax = self.cost(case.taxed)
        untaxed = [
            position
            for position, copy in enumerate(case.copies)
            if copy.step is not None and case.reasons[position] is not None
        ]
        return Totals(
            steps=case.steps,
            steps_found=case.trace.steps_found,
            whole=case.trace.whole,
            unseen=case.unseen,
            step_ns=self.step_ns if case.trace.has_wall_time else None,
            copies=tax.copies if case.measured else None,
            bytes_moved=tax.bytes_moved if case.measured else None,
            duration_ns=tax.duration_ns if case.measured else None,
            share=tax.share if case.measured else None,
            share_of=self.share_of,
            by_kind=self._by((case.copies[position].kind, position) for position in case.taxed),
            by_change=self._by((case.copies[position].change, position) for position in case.taxed),
            untaxed=self._by((case.reasons[position] or "", position) for position in untaxed),
        )

    def _by(self, named: Iterable[tuple[str, int]]) -> dict[str, Cost]:
        groups: dict[str, list[int]] = defaultdict(list)
        for name, position in named:
            groups[name].append(position)
        return {name: self.cost(group) for name, group in sorted(groups.items())}


def _busy_ns(case: Case) -> float | None:
    """The time of all kernels that a step launched, over streams and devices; None without a device."""
    if not case.kernels:
        return None
    return sum(case.trace.device_events[at].duration_ns for at in case.kernels_of_steps) / case.steps


def _device_span_ns(case: Case) -> float:
    """From the start of the steps' first kernel to the end of their last, per step."""
    events = [case.trace.device_events[at] for at in case.kernels_of_steps]
    if not events:
        return 0
    end_ns = max(event.start_ns + event.duration_ns for event in events)
    return (end_ns - min(event.start_ns for event in events)) / case.steps
