"""One step of many is recorded while a loop runs, and told to whoever asked."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from statistics import median
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import msgspec

from stridewise import results
from stridewise.analysis import analyze_trace
from stridewise.api.codes import wanted_budget, wanted_codes
from stridewise.api.monitoring.callers import level_outside
from stridewise.api.monitoring.files import StepFiles
from stridewise.api.monitoring.loggers import adapted_all
from stridewise.api.monitoring.options import check_options
from stridewise.api.recordings import MIN_SHARE, Report
from stridewise.config import Budget, project_root
from stridewise.errors import BudgetExceeded, InputError, LayoutWarning, UsageError
from stridewise.recorder import tracebacks
from stridewise.recorder.job import Job, find_job
from stridewise.recorder.watching.pace import Pace
from stridewise.recorder.watching.single import OPEN, Dropped, StepRecorder, Unusable
from stridewise.recording.handle import Recording
from stridewise.report.scalars import scalars
from stridewise.results import numbers

OnExcess = Literal["warn", "raise"]
Batch = TypeVar("Batch")

_SAMPLES = 5
"""Steps before a recorded one that are timed, to know what recording added to it."""

_log = logging.getLogger("stridewise")


class Monitor(Generic[Batch]):
    """What `monitor` gives: see there. To be used by one loop, on one thread."""

    def __init__(
        self,
        loader: Iterable[Batch] | None = None,
        *,
        every: int | None = 1000,
        warmup: int = 10,
        max_overhead: float | None = 0.001,
        budget: Budget | str = "",
        on_excess: OnExcess = "warn",
        loggers: Any = (),
        on_report: Callable[[Report, int], object] | None = None,
        folder: str | os.PathLike[str] | None = None,
        formats: Collection[str] = ("html", "json"),
        recordings: bool | None = None,
        keep: int | None = 10,
        library_copies: bool = False,
        max_ops: int = 200_000,
        min_share: float = MIN_SHARE,
        select: Collection[str] | None = None,
        ignore: Collection[str] | None = None,
        job: Job | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_options(
            loader=loader,
            every=every,
            warmup=warmup,
            max_overhead=max_overhead,
            budget=budget,
            on_excess=on_excess,
            on_report=on_report,
            folder=folder,
            formats=formats,
            recordings=recordings,
            keep=keep,
            library_copies=library_copies,
            max_ops=max_ops,
            min_share=min_share,
        )
        self.report: Report | None = None
        """Of the step that was recorded last."""
        self.recorded_step: int | None = None
        """Which one that was."""
        self.steps = 0
        """How many are over."""
        self.notes: list[str] = []
        """What was not recorded, and why."""
        self._loader = loader
        self._on_excess = on_excess
        self._loggers = adapted_all(loggers)
        self._on_report = on_report
        self._job = job or find_job()
        self._files = (
            None
            if folder is None
            else StepFiles(folder, formats=formats, recordings=recordings, keep=keep, job=self._job)
        )
        self._min_share = min_share
        self._select, self._ignore = wanted_codes(select, ignore)
        self._budget = wanted_budget(budget, self._select, self._ignore)
        self._max_overhead = max_overhead
        # A rank that records makes the others wait: all of them do it at the same steps, whatever each one measures.
        self._fixed = max_overhead is None or (self._job is not None and self._job.ranks > 1)
        limit = math.inf if self._fixed else float(max_overhead or 0)
        self._pace = Pace(first=warmup + 1, every=every, max_overhead=limit)
        self._recorder = StepRecorder(library_copies=library_copies, max_ops=max_ops)
        self._clock = clock
        self._started: float | None = None
        """When the first step was over: it often holds set-up."""
        self._first_steps = 0
        self._began: float | None = None
        """When the step began that is timed or recorded."""
        self._begin_cost = 0.0
        self._samples: list[float] = []
        self._process = os.getpid()
        self._outer: Any = None
        """`stridewise run` around us: then it alone records."""
        self._wake: float = 0
        """With so many steps over there is something to do."""
        self.within = {"stridewise"}
        """Packages that call the loop's code and are not it: a warning is shown at the line that called them."""
        # A loop that forgets to close it, or fails: no profiler must go on when nobody can end it any more.
        weakref.finalize(self, _release, self._recorder).atexit = False

    # -- the loop --------------------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> None:
        """A step of the loop is over, and the next begins; `number` is what the one that is over is called."""
        self.steps += 1
        if self.steps >= self._wake:
            self._end(number)
            self._begin()

    def begin(self) -> None:
        """A step begins: with `end` in place of `step`, where other work lies between steps."""
        if self.steps >= self._wake:
            self._begin()

    def end(self, number: int | None = None) -> None:
        """The step that began is over; `number` is what it is called."""
        self.steps += 1
        if self.steps >= self._wake:
            self._end(number)

    def cancel(self, why: str = "cancel() was called in its midst") -> None:
        """What goes on is no step, such as a validation between two: it is not recorded, the next step is instead.

        `why` is for the notes.
        """
        self._began = None
        if self._recorder.running:
            self._note(f"a step was not recorded: {why}")
            self._guarded(self._recorder.drop)
            self._pace.again(self._begin_cost)
            self._sleep()

    def close(self) -> None:
        """Record no more. What was being recorded is dropped."""
        if self._wake != math.inf and self.report is None and self._outer is None and self.steps:
            self._note(f"the loop ended after {numbers.count(self.steps, 'step')}, before one was recorded")
        self._off()

    @property
    def unrecorded(self) -> str:
        """Why nothing was recorded in all steps; empty if something was, or others record."""
        if self.report is not None or self._outer is not None or not self.steps:
            return ""
        return "; ".join(self.notes[:-1][-2:] or self.notes) or "none was due"

    def __enter__(self) -> Monitor[Batch]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        was_recording = self._recorder.running
        self.close()
        if value is not None and was_recording:
            tracebacks.clean(value)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the loader; asking for the next one says that a step is over."""
        if self._loader is None:
            raise UsageError("This monitor has no loader.", advice="Give it one: monitor(loader); or call step().")
        try:
            for batch in self._loader:
                yield batch
                self.step()
        finally:
            self.cancel("the loop over the loader ended")

    def __len__(self) -> int:
        if not isinstance(self._loader, Sized):
            raise TypeError("the monitor's loader has no length")
        return len(self._loader)

    def __bool__(self) -> bool:
        return True  # whatever the length of the loader

    # -- where a step ends and where one begins --------------------------------------------------------------------

    def _end(self, number: int | None) -> None:
        now = self._clock()
        if self._started is None:
            self._started, self._first_steps = now, self.steps
            self._look_around()
        if self._outer is not None:
            self._pass_on()
            return
        if self._recorder.running and not self._recorder.is_here and not self._recorder.is_inherited:
            if self._recorder.is_orphan:
                self.cancel("the thread on which it began has ended")
            return  # it ends where it began
        began, self._began = self._began, None
        if began is None:
            return
        if self._recorder.running:
            self._finish(self.steps if number is None else number, began, now)
        else:
            self._samples = [*self._samples, now - began][-_SAMPLES:]

    def _begin(self) -> None:
        if self._started is None:
            self._look_around()
        if self._outer is not None or self._recorder.running or self._wake == math.inf:
            return
        now = self._clock()
        self._began = now
        if self.steps < self._pace.due - 1:
            self._sleep()
            return
        if os.getpid() != self._process:  # a fork goes on with the loop: one of the two is enough
            self._wake = math.inf
            return
        if not self._pace.allows(now - (self._started or now), self._step_time(now)):
            self._note(
                f"recordings are put off: they have cost more than max_overhead={self._max_overhead:g} of the time"
                " (None records each that is due)"
            )
            self._sleep()
            return
        try:
            self._guarded(self._recorder.begin)
        except Dropped as dropped:
            self._note(f"step {self.steps + 1} was not recorded: {dropped}")
            self._pace.missed(self._clock() - now)
        self._sleep()
        self._began = self._clock()
        self._begin_cost = self._began - now

    def _sleep(self) -> None:
        """Until a few steps before the next recording; not at all while one is being made."""
        if self._wake != math.inf:
            self._wake = 0 if self._recorder.running else self._pace.due - 1 - _SAMPLES

    def _step_time(self, now: float) -> float:
        steps = self.steps - self._first_steps
        return (now - (self._started or now) - self._pace.spent_s) / steps if steps else 0.0

    def _look_around(self) -> None:
        script = sys.modules.get("stridewise.recorder.script")
        self._outer = getattr(script, "current", None)
        if self._outer is not None:
            self._wake = 0
            self._note("`stridewise run` records this program: the monitor leaves it to that")
        else:
            self._sleep()

    def _pass_on(self) -> None:
        live = sys.modules.get("stridewise.recorder.live")
        if live is not None:
            live.step()

    # -- what a recorded step says ---------------------------------------------------------------------------------

    def _finish(self, number: int, began: float, now: float) -> None:
        plain = median(self._samples) if self._samples else 0.0
        try:
            report = self._guarded(lambda: self._report_on(number))
        except Dropped as dropped:
            self._note(f"step {number} was not recorded: {dropped}")
            report = None
        cost = self._begin_cost + max(0.0, now - began - plain) + self._clock() - now
        if report is None:
            self._pace.again(cost)
            self._sleep()
            return
        self._pace.recorded(cost)
        self._sleep()
        self._say_if_dear()
        if self._on_report is not None:
            self._on_report(report, number)
        self._hold_to_budget(report, number)

    def _report_on(self, number: int) -> Report:
        recorded = self._recorder.end()
        html = self._files is not None and "html" in self._files.formats
        found = analyze_trace(
            recorded.recording.trace,
            min_share=self._min_share,
            select=self._select,
            ignore=self._ignore,
            source_root=project_root(),
            timeline=html,
        )
        report = Report(*msgspec.structs.astuple(found))
        self.report, self.recorded_step = report, number
        self._tell(report, number)
        self._write(report, recorded.recording, number)
        if recorded.open_annotation:
            self._off()
            self._note(f"no step is recorded any more: {OPEN}", logging.WARNING)
        return report

    def _tell(self, report: results.Report, number: int) -> None:
        figures = scalars(report)
        for logger in tuple(self._loggers):
            try:
                logger(report, figures, number)
            except Exception:  # the user's own code, or a service that is down
                _log.warning("stridewise: a logger failed, and is told nothing more", exc_info=True)
                self._loggers.remove(logger)

    def _write(self, report: results.Report, recording: Recording, number: int) -> None:
        if self._files is None:
            return
        try:
            self._files.write(report, recording, number)
        except (OSError, InputError) as error:
            self._note(f"no more files are written: {error}", logging.WARNING)
            self._files = None

    def _hold_to_budget(self, report: Report, number: int) -> None:
        lines = self._budget.exceeded(report)
        if not lines:
            return
        error = BudgetExceeded(lines, step=number, report=report)
        if self._on_excess == "raise":
            self._off()
            raise error
        warnings.warn(str(error), LayoutWarning, stacklevel=level_outside(self.within))

    def _say_if_dear(self) -> None:
        """Where the pace is fixed nothing is pushed back: say once that it costs more than was wanted."""
        now = self._clock()
        elapsed = now - (self._started or now)
        limit = self._max_overhead
        if not self._fixed or limit is None or self._job is None or self._job.rank or elapsed <= 0:
            return
        share = self._pace.spent_s / elapsed
        if share > limit and self._pace.recordings > 1:
            self._max_overhead = None
            self._note(
                f"recordings cost {100 * share:.2g} % of the time, and are not pushed back in a job of many ranks:"
                f" `every` should be {share / limit:.2g} times as large",
                logging.WARNING,
            )

    # -- when something is wrong -----------------------------------------------------------------------------------

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """Do our part; if it fails the loop goes on without us. Lets Dropped through."""
        try:
            return act()
        except Dropped:
            raise
        except Unusable as reason:
            self._off()
            self._note(f"no step is recorded any more: {reason}", logging.WARNING)
        except Exception:  # a defect of ours: the loop has nothing to do with it
            self._off()
            self.notes.append("the monitor failed, and is off: see the log")
            _log.warning("stridewise: the monitor failed, and is off; the loop goes on without it", exc_info=True)
        except BaseException:  # Control-C while a recording ends
            self._off()
            raise
        return None

    def _off(self) -> None:
        self._wake = math.inf
        _release(self._recorder)

    def _note(self, text: str, level: int = logging.INFO) -> None:
        if text not in self.notes[-20:]:
            self.notes.append(text)
            _log.log(level, "stridewise: %s", text)


def _release(recorder: StepRecorder) -> None:
    try:
        recorder.close()
    except Exception:  # also called by a finalizer, from which nothing may come
        _log.warning("stridewise: a recording could not be ended cleanly", exc_info=True)
