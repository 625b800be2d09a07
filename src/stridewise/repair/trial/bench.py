"""Measures versions of a program against each other: results first, then copies and memory, then time."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from msgspec import Struct

from stridewise.analysis.assemble import report_of
from stridewise.analysis.case import Case
from stridewise.findings import Cost
from stridewise.measure.statistics import Interval
from stridewise.measure.timing import SAMPLE_NS, Timed, compare
from stridewise.measure.timing import Arm as TimedArm
from stridewise.repair.candidate import Candidate
from stridewise.repair.refused import Refused
from stridewise.repair.trial.arms import Arm, Arms
from stridewise.repair.trial.drawing import DrawnInPlace
from stridewise.repair.trial.memory import Memory, measure_memory
from stridewise.repair.trial.observe import Comparison, Observation, observe
from stridewise.repair.trial.observe import compare as compare_results
from stridewise.repair.trial.reference import FARTHEST, is_as_exact
from stridewise.repair.trial.workload import Workload
from stridewise.results import Measurement, Report, Verdict

LESS = 0.99
"""A share of what was before below which less memory counts as saved."""

OnPair = Callable[[int, Interval | None], None]


class Timer:
    """Times two arms until a deadline. Tests put another in its place."""

    clock = staticmethod(time.monotonic)

    def __init__(self, *, sample_ns: int = SAMPLE_NS) -> None:
        self._seeds = count()
        self._sample_ns = sample_ns

    def __call__(self, before: TimedArm, after: TimedArm, deadline: float, on_pair: OnPair | None) -> Timed:
        """Give how their times compare."""
        return compare(
            before,
            after,
            clock=self.clock,
            deadline=deadline,
            progress=on_pair,
            seed=next(self._seeds),
            sample_ns=self._sample_ns,
        )


class Looked(Struct, frozen=True):
    """What a version does in a step, but for its time."""

    report: Report
    tax: Cost
    memory: Memory


class Measured(Struct, frozen=True):
    """A measurement, and what the changed program's recording says."""

    figures: Measurement | None
    """None if time was up before there was an interval."""
    report: Report | None


class Bench:
    """Tries candidates on a workload. Whenever none of its methods runs, the program is as it was."""

    def __init__(
        self,
        workload: Workload,
        arms: Arms,
        *,
        tolerance: float | None = None,
        library_copies: bool = False,
        min_share: float = 0,
        timer: Timer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workload = workload
        self.step_ns: float | None = None
        """Median time of a step of the unchanged program, in the last trial."""
        self.timer = timer or Timer()
        self._clock = clock
        self._arms = arms
        self._tolerance = tolerance
        self._library_copies = library_copies
        self._min_share = min_share
        begin = clock()
        with workload.aside():
            self._results = observe(workload)
            self._base = self._look()
        self.untimed_s = clock() - begin
        """Seconds that a trial takes besides its timing, as in the last one."""

    def reproduces_itself(self) -> Comparison:
        """How two steps of the unchanged program differ. Raises Refused if by more than is tolerated."""
        with self.workload.aside():
            before = observe(self.workload) if self.workload.moves_on else self._results
            return compare_results(before, observe(self.workload), self._tolerance)

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        against: Sequence[Candidate] = (),
        deadline: float,
        on_pair: OnPair | None = None,
    ) -> Measured:
        """Time candidates together against the original, or against others that are in place there.

        Results, copies and memory are compared with the original's in any case.
        """
        looked = comparison = timed = equal = reason = None
        begin = self._clock()
        try:
            with self._left_as_it_was():
                arm = self._arms.arm(candidates)
                base = self._arms.arm(against) if against else arm.unedited()
                with self.workload.aside():
                    before = observe(self.workload) if self.workload.moves_on else self._results
                    arm.enter()
                    after = observe(self.workload)
                    equal = False
                    comparison, reason = self._compared(before, after, arm)
                    equal = True if comparison.compared else None
                    looked = self._look()
                    self._arms.put_back()
                if all(candidate.removes_copies for candidate in candidates):
                    _require_less_tax(self._base.tax, looked.tax)
                self.untimed_s = self._clock() - begin
                timed = self.timer(base, arm, deadline, on_pair)
        except Refused as refused:
            reason = str(refused)
            self._recover()
        except Exception as error:
            reason = _in_words(error)
        if timed is not None and timed.before_ns is not None and not against:
            self.step_ns = timed.before_ns
        report = looked.report if looked is not None else None
        if timed is not None and timed.verdict is None:
            return Measured(None, report)
        saves_memory = all(candidate.saves_memory for candidate in candidates)
        verdict, reason = self._judge(timed, looked, reason, saves_memory)
        memory = looked.memory if looked is not None else None
        interval = timed.interval if timed is not None else None
        figures = Measurement(
            ratio=interval.ratio if interval else None,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            pairs=timed.pairs if timed is not None else 0,
            equal=equal,
            difference=comparison.difference if comparison is not None else None,
            verdict=verdict,
            reason=reason,
            copies_before=self._base.tax.copies,
            copies_after=looked.tax.copies if looked is not None else None,
            tax_before=self._base.tax,
            tax_after=looked.tax if looked is not None else None,
            peak_before=self._base.memory.peak,
            peak_after=memory.peak if memory is not None else None,
            kept_before=self._base.memory.kept,
            kept_after=memory.kept if memory is not None else None,
            unseen=comparison.unseen if comparison is not None else (),
            layouts=comparison.layouts if comparison is not None else (),
        )
        return Measured(figures, report)

    def _compared(self, before: Observation, after: Observation, arm: Arm) -> tuple[Comparison, str | None]:
        """How results differ, and what to say of that. Raises Refused if by more than is tolerated.

        Where numbers are drawn at random, as for dropout, another layout has them drawn in another order. Where not,
        those of float64 can tell whose rounding errors they are.
        """
        try:
            return compare_results(before, after, self._tolerance), None
        except Refused as refused:
            mode = DrawnInPlace()
            again = observe(self.workload, mode)
            self._arms.put_back()
            try:
                if not mode.draws:
                    return self._by_reference(before, after, refused)
                comparison = compare_results(observe(self.workload, DrawnInPlace()), again, self._tolerance)
            finally:
                arm.enter()
        if self.workload.moves_on:
            raise Refused(
                "random numbers, as for dropout, would be drawn in another order: the script goes on otherwise"
            )
        return (
            comparison,
            "random numbers, as for dropout, are drawn in another order with it; compared apart from that",
        )

    def _by_reference(self, before: Observation, after: Observation, refused: Refused) -> tuple[Comparison, str | None]:
        if not is_as_exact(self.workload, before, after):
            raise refused
        comparison = compare_results(before, after, FARTHEST)
        return (
            comparison,
            "results differ by rounding errors of the original: those of float64 are as near to the edited",
        )

    def _recover(self) -> None:
        """An edit may have written where torch does not see it."""
        self.workload.recover()
        self.workload.prepare()

    def _judge(
        self, timed: Timed | None, looked: Looked | None, reason: str | None, saves_memory: bool
    ) -> tuple[Verdict, str | None]:
        if timed is None or looked is None or timed.verdict is None:
            return "refused", reason
        if saves_memory and timed.verdict != "lost" and looked.memory.kept < LESS * self._base.memory.kept:
            return "won", "what a step returns keeps less memory"
        return timed.verdict, reason

    def _look(self) -> Looked:
        """Record a step of the version that is in place, which has run before, and watch the memory of another."""
        recording = self.workload.recorded(1, library_copies=self._library_copies)
        report = report_of(Case(recording.trace), min_share=self._min_share)
        totals = report.totals
        tax = Cost(totals.copies or 0, totals.bytes_moved, totals.duration_ns, totals.share)
        return Looked(report, tax, measure_memory(self.workload))

    @contextmanager
    def _left_as_it_was(self) -> Iterator[None]:
        """The garbage collector does not come between; afterwards the original is in place, in the state it had."""
        gc.collect()
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()
            self._arms.put_back()
            self.workload.prepare()


def _require_less_tax(before: Cost, after: Cost) -> None:
    if (after.bytes_moved or 0) >= (before.bytes_moved or 0):
        raise Refused(
            f"it saves no bytes, and only moves the cost elsewhere: {_of(before)} a step before, {_of(after)} after"
        )


def _of(tax: Cost) -> str:
    moved = f"{(tax.bytes_moved or 0) / 1e6:.3g} MB"
    return f"1 copy that moves {moved}" if tax.copies == 1 else f"{tax.copies:g} copies that move {moved}"


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory"
    said = " ".join(str(error).split())
    said = said if len(said) <= 200 else f"{said[:199]}…"
    return f"it raises {type(error).__name__}" + (f": {said}" if said else "")
