"""Adds up what copies cost, per step and as a share of it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.findings import Cost
from stridewise.results import Totals

STEP_TIME = "step time"
KERNEL_TIME = "kernel-busy time"


class Tally:
    """The figures of one recording. Everything it returns is per step."""

    def __init__(self, case: Case) -> None:
        self.case = case
        steps = case.trace.steps
        self.step_ns = sum(step.end_ns - step.start_ns for step in steps) / len(steps)
        self.busy_ns = _busy_ns(case)
        self.share_of = KERNEL_TIME if self.busy_ns is not None else STEP_TIME

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
        return Cost(
            copies=self.per_step(len(found)),
            bytes_moved=self.per_step(sum(copy.bytes_moved or 0 for copy in found)),
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
            step_ns=self.step_ns,
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
    """Time in which a device ran kernels, per step and added up over devices; None without a device."""
    kernels = [event for event in case.trace.device_events if event.category.lower() == "kernel"]
    if not kernels:
        return None
    busy = 0
    by_device: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    starts = [step.start_ns for step in case.trace.steps]
    for event in kernels:
        # A kernel belongs to the step that launched it: the device may run it long after.
        launched = case.trace.ops[event.op].start_ns if event.op >= 0 else event.start_ns
        if step_of(case.trace, starts, launched) is not None:
            by_device[event.device].append((event.start_ns, event.start_ns + event.duration_ns))
    for spans in by_device.values():
        end = 0
        for start, stop in sorted(spans):
            busy += max(0, stop - max(start, end))
            end = max(end, stop)
    return busy / case.steps
