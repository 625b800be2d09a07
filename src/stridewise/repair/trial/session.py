"""From a workload to a repair: record it, try what may help, keep what wins, and put that together."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import asdict, replace
from torch.utils.data import DataLoader

from stridewise.analysis.assemble import report_of
from stridewise.analysis.case import Case
from stridewise.errors import InputError, UsageError
from stridewise.findings import Finding
from stridewise.measure.statistics import CONFIDENCE, Interval
from stridewise.recorder.state import instances
from stridewise.recording.handle import Recording
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context, Live
from stridewise.repair.kinds import all_kinds
from stridewise.repair.options import Options
from stridewise.repair.outcome import Outcome
from stridewise.repair.plan.costs import NO_COSTS, Costs
from stridewise.repair.plan.slow import Slow
from stridewise.repair.refused import Refused
from stridewise.repair.rules import sw104, sw109
from stridewise.repair.trial import observe
from stridewise.repair.trial.arms import Arms
from stridewise.repair.trial.bench import Bench, Measured, Timer
from stridewise.repair.trial.capture import capture
from stridewise.repair.trial.costs import measure
from stridewise.repair.trial.forecast import forecast_of
from stridewise.repair.trial.winners import Tried, Winner, distance, winners_of
from stridewise.repair.trial.workload import Ended, Workload
from stridewise.results import EditedFile, Measurement, Progress, Repair, Report, Trial, Untried
from stridewise.source import edits as source_edits
from stridewise.source.file import SourceFile
from stridewise.source.files import Files
from stridewise.source.patch import changes, unified

STEPS = 3
"""How many steps of the unchanged program are recorded."""
REPLAYED = 0.15
"""Share of the time limit that replaying single operators may take."""
LEAST_SECONDS = 1.0
"""Of a trial's timing: where less is left, no trial begins."""
TOGETHER = 0.25
"""Share of the time limit that is kept for trying what wins together."""

_ADDS_NOTHING = "it wins alone, and adds nothing to edits that are kept"
_WANTS_COSTS = frozenset({"copy-before-kernel", "step-plan"})


OnProgress = Callable[[Progress], object]


class Session:
    """One run of `fix`."""

    def __init__(
        self,
        workload: Workload,
        files: Files,
        options: Options,
        *,
        on_progress: OnProgress | None = None,
        recording: Recording | None = None,
        timer: Timer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workload = workload
        self.files = files
        self.options = options
        self.interrupted = False
        self.notes: list[str] = []
        self._bench: Bench | None = None
        self._left: Report | None = None
        """Of the program with all that is kept in place."""
        self._recording = recording
        self._tell = on_progress or (lambda progress: None)
        self._clock = clock
        self._deadline = clock() + options.time_limit
        self._timer = timer
        self._opened: dict[str, SourceFile | None] = {}
        self._arms = Arms(workload, self._source)

    def run(self, live: Live) -> Outcome:
        """Everything, from the recording to the diff. An interruption ends the trials, and what is known is given."""
        self._tell(Progress("recording"))
        case, report = self._record()
        tried: list[Tried] = []
        together = None
        try:
            bench = self._bench = Bench(
                self.workload,
                self._arms,
                tolerance=self.options.tolerance,
                library_copies=self.options.library_copies,
                min_share=self.options.min_share,
                timer=self._timer,
                clock=self._clock,
            )
            slow, costs = self._costs_of_calls()
            report = replace(report, findings=(*report.findings, *self._slow_findings(report, slow)))
            tried = [
                Tried(candidate, distance(candidate, report.findings))
                for candidate in self._candidates(Context(report, case, live, self._source, slow, costs))
            ]
            del live, case
            self._try_all(bench, tried)
            together = self._put_together(bench, winners_of(tried))
        except (KeyboardInterrupt, Ended) as ended:
            if isinstance(ended, Ended) and not tried:
                raise  # nobody knows whether there is anything to try
            self.interrupted = isinstance(ended, KeyboardInterrupt) or ended.interrupted
            done = sum(entry.figures is not None for entry in tried)
            why = "Interrupted" if self.interrupted else str(ended)
            account = f"{done} of {len(tried)} edits were tried" if done < len(tried) else "not all was tried together"
            self.notes.append(f"{why}: {account}. The program is as it was.")
            together = self._best_alone(tried)
        return self._outcome(report, tried, together)

    # -- what there is to try --------------------------------------------------------------------------------------

    def _record(self) -> tuple[Case, Report]:
        recording = self._recording or self.workload.recorded(STEPS, library_copies=self.options.library_copies)
        case = Case(recording.trace)
        return case, report_of(case, min_share=self.options.min_share)

    def _costs_of_calls(self) -> tuple[tuple[Slow, ...], Costs]:
        """The calls whose kernels are slow on the layouts that they are given; and what calls cost on others."""
        if self.options.only and not _WANTS_COSTS.intersection(self.options.only):
            return (), NO_COSTS
        self._tell(Progress("replaying"))
        deadline = min(self._deadline, self._clock() + REPLAYED * self.options.time_limit)
        with self.workload.aside():
            self.workload.prepare()
            signatures = capture(self.workload.run, everything=True)
            self.workload.prepare()
            return measure(signatures, deadline=deadline, clock=self._clock, note=self.notes.append)

    def _slow_findings(self, report: Report, slow: Sequence[Slow]) -> list[Finding]:
        return sw109.findings(
            slow, step_ns=report.totals.step_ns, min_share=self.options.min_share, others=report.findings
        )

    def _candidates(self, context: Context) -> list[Candidate]:
        """Each once, the most promising first."""
        found: dict[object, Candidate] = {}
        for kind in all_kinds():
            if self.options.only and kind.name not in self.options.only:
                continue
            for candidate in kind.candidates(context):
                if self.workload.moves_on and not candidate.keeps_values:
                    continue
                key = candidate.edits, candidate.conversions
                known = found.setdefault(key, candidate)
                if known is not candidate:
                    both = tuple(dict.fromkeys((*known.findings, *candidate.findings)))
                    found[key] = replace(known, findings=both, plan=known.plan or candidate.plan)
        costs = {finding.fingerprint: finding.cost.duration_ns or 0 for finding in context.report.findings}
        usual = max(costs.values(), default=0) / 2
        return sorted(
            found.values(),
            key=lambda candidate: (
                -sum(costs.get(name, 0) for name in candidate.findings) if candidate.findings else -usual
            ),
        )

    # -- trials ----------------------------------------------------------------------------------------------------

    def _try_all(self, bench: Bench, tried: Sequence[Tried]) -> None:
        if not tried:
            return
        try:
            bench.reproduces_itself()
        except Refused as refused:
            self.notes.append(f"A step does not give the same results twice, so edits can't be judged: {refused}.")
            return
        reserved = TOGETHER * self.options.time_limit if len(tried) > 1 else 0
        for number, entry in enumerate(tried):
            if not self._has_time():
                break
            until = self._share(len(tried) - number, reserved)
            measured = self._measure(bench, "trying", (number, len(tried)), [entry.candidate], until)
            entry.figures, entry.report = measured.figures, measured.report
            where = (self.workload, self._arms) if self._has_time() else None
            entry.forecast = forecast_of(entry.candidate, measured.figures, bench.step_ns, where)
        late = sum(entry.figures is None for entry in tried)
        if late:
            edits = "1 edit was" if late == 1 else f"{late} edits were"
            limit = f"The time limit of {self.options.time_limit:g} s"
            self.notes.append(f"{limit} was over before {edits} tried: `--time-limit` sets it.")

    def _has_time(self) -> bool:
        """Whether a trial that begins now can be timed before the limit is over."""
        untimed = self._bench.untimed_s if self._bench is not None else 0
        return self._clock() + untimed + LEAST_SECONDS <= self._deadline

    def _share(self, trials: int, reserved: float = 0) -> float:
        """Until when the first of some trials may last: twice its share, since most are clear before, and in time."""
        now = self._clock()
        remaining = self._deadline - reserved - now
        untimed = self._bench.untimed_s if self._bench is not None else 0
        return min(self._deadline, now + max(untimed + LEAST_SECONDS, 2 * remaining / (trials + 1)))

    def _put_together(self, bench: Bench, winners: Sequence[Winner]) -> Measurement | None:
        """Keep the first; then each other that still makes the program faster when it comes to those that are kept."""
        kept: list[Tried] = []
        for number, (entry, figures) in enumerate(winners):
            until = self._share(len(winners) - number + 1)
            reason = self._why_not_add(bench, entry, kept, (number, len(winners)), until)
            entry.kept = reason is None
            if reason is None:
                kept.append(entry)
            else:
                entry.figures = replace(figures, reason=reason)
        self._left = kept[0].report if kept else None
        if len(kept) <= 1:
            return winners[0][1] if winners else None
        all_kept = [entry.candidate for entry in kept]
        measured = self._measure(bench, "together", (len(winners), len(winners)), all_kept, self._deadline)
        together = measured.figures
        if together is None or together.verdict != "won":
            why = "time was up" if together is None else together.reason or together.verdict
            self.notes.append(f"All at once the edits did not win ({why}): only the best is kept.")
            return self._keep_alone(kept[0], kept, _ADDS_NOTHING)
        bound = together.high or 1
        enough = next((entry for entry, figures in winners if entry.kept and (figures.low or 1) <= bound), None)
        if enough is not None:
            return self._keep_alone(enough, kept, _ADDS_NOTHING)
        self._left = measured.report
        return together

    def _keep_alone(self, only: Tried, winners: Sequence[Tried], reason: str) -> Measurement | None:
        """Keep one of some winners; the others get the reason why they are not."""
        for entry in winners:
            entry.kept = entry is only
            if not entry.kept and entry.figures is not None:
                entry.figures = replace(entry.figures, reason=reason)
        self._left = only.report
        return only.figures

    def _why_not_add(
        self, bench: Bench, entry: Tried, kept: Sequence[Tried], at: tuple[int, int], until: float
    ) -> str | None:
        """Why a winner is not kept beside others; None if it is."""
        if not kept:
            return None
        before = [other.candidate for other in kept]
        if any(source_edits.overlap(entry.candidate.edits, other.edits) for other in before):
            return "it changes the same source as an edit that is kept"
        added = self._measure(bench, "together", at, [*before, entry.candidate], until, against=before).figures
        if added is None:
            return "time was up before it was tried together with edits that are kept"
        if added.verdict == "won" or (added.high is not None and added.high < 1):
            return None
        if entry.candidate.saves_memory and added.verdict == "no difference":
            return None
        return added.reason if added.verdict == "refused" else _ADDS_NOTHING

    def _best_alone(self, tried: Sequence[Tried]) -> Measurement | None:
        """What can be kept when how winners go together is not known."""
        winners = [entry for entry, _ in winners_of(tried)]
        if not winners:
            return None
        return self._keep_alone(winners[0], winners, "the trials ended before it was tried together with others")

    def _measure(
        self,
        bench: Bench,
        phase: Literal["trying", "together"],
        at: tuple[int, int],
        candidates: Sequence[Candidate],
        deadline: float,
        against: Sequence[Candidate] = (),
    ) -> Measured:
        if not self._has_time():
            return Measured(None, None)
        what = candidates[-1].what

        def on_pair(pairs: int, interval: Interval | None) -> None:
            self._tell(Progress(phase, *at, what, interval.ratio if interval is not None else None))

        self._tell(Progress(phase, *at, what))
        return bench.measure(candidates, against=against, deadline=deadline, on_pair=on_pair)

    def _source(self, name: str) -> SourceFile | None:
        """A source file, as it read when it was first looked at; None if it can't be edited."""
        if name not in self._opened:
            try:
                self._opened[name] = self.files.open(name)
            except InputError:
                self._opened[name] = None
        return self._opened[name]

    # -- what came of it -------------------------------------------------------------------------------------------

    def _outcome(self, report: Report, tried: Sequence[Tried], together: Measurement | None) -> Outcome:
        answers = {kind.name: kind.answers for kind in all_kinds()}
        trials = tuple(
            _trial(entry, entry.figures, answers[entry.candidate.kind]) for entry in tried if entry.figures is not None
        )
        untried = (entry.candidate for entry in tried if entry.figures is None)
        winners = tuple(entry.candidate for entry in tried if entry.kept)
        changed = changes(self._source, [edit for candidate in winners for edit in candidate.edits])
        repair = Repair(
            findings=(*report.findings, *self._needless(tried, answers)),
            trials=trials,
            together=together,
            diff=unified(changed, self.files.root),
            files=tuple(
                EditedFile(
                    change.file.name,
                    change.file.sha256,
                    installed=change.file.on_disk and self.files.is_installed(change.file.path),
                    is_cell=not change.file.on_disk,
                )
                for change in changed
            ),
            step_ns=self._step_ns or report.totals.step_ns,
            confidence=CONFIDENCE,
            tolerance=observe.in_words(self.options.tolerance),
            notes=(*report.notes, *self.notes),
            environment=report.environment,
            left=self._left.findings if self._left is not None else None,
            format_lost=_format_lost(tried),
            only=self.options.asked or self.options.only,
            untried=tuple(Untried(candidate.kind, candidate.what, candidate.site) for candidate in untried),
            interrupted=self.interrupted,
        )
        return Outcome(repair, changed, self.files, self._applying(winners))

    def _applying(self, winners: Sequence[Candidate]) -> Callable[[], None]:
        """What puts the winners in place for good, once."""
        applied = False

        def apply() -> None:
            nonlocal applied
            if applied or not winners:
                return
            if any(conversion.what == "inputs" for winner in winners for conversion in winner.conversions):
                raise UsageError("The model's inputs have to be converted: that is for the program to do.")
            try:
                self._arms.arm(winners).begin()
            except Refused as refused:
                raise UsageError(f"The edits can't be put in place: {refused}.") from None
            applied = True

        return apply

    def _needless(self, tried: Sequence[Tried], answers: Mapping[str, str]) -> Iterator[Finding]:
        for entry, figures in winners_of(tried):
            if entry.candidate.needless:
                trial = _trial(entry, figures, answers[entry.candidate.kind])
                yield sw104.finding(trial, step_ns=self._step_ns, min_share=self.options.min_share)

    @property
    def _step_ns(self) -> float | None:
        return self._bench.step_ns if self._bench is not None else None


def live_of(workload: Workload, target: Callable[..., Any] | None = None) -> Live:
    """The objects of a workload that kinds of candidates look at; it runs a step once more for its output."""
    with workload.aside():
        workload.prepare()
        output = workload.run()
        workload.prepare()
    loaders = tuple(instances(DataLoader))
    return Live(workload.model, workload.args, workload.kwargs, output, loaders, target)


def _format_lost(tried: Sequence[Tried]) -> tuple[Finding, ...]:
    """Of the trial that made most of the model channels_last, and could be recorded."""
    reports = [entry.report for entry in tried if entry.candidate.kind == "channels-last-model" and entry.report]
    return tuple(finding for finding in reports[0].findings if finding.code == "SW106") if reports else ()


def _trial(entry: Tried, figures: Measurement, answers: str) -> Trial:
    candidate = entry.candidate
    return Trial(
        **asdict(figures),
        candidate=candidate.kind,
        what=candidate.what,
        answers=answers,
        site=candidate.site,
        findings=candidate.findings,
        edits=candidate.edits,
        kept=entry.kept,
        forecast=entry.forecast.ratio if entry.forecast is not None else None,
        forecast_off=entry.forecast.off if entry.forecast is not None else None,
    )
