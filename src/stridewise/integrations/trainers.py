"""What the callbacks of trainers have in common: a monitor for each fit, told where optimizer steps begin and end."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Collection
from importlib import import_module
from typing import Any

from stridewise.api.monitoring import Monitor, Options
from stridewise.api.monitoring.options import check_options
from stridewise.api.recordings import Report
from stridewise.recorder.job import Job

_log = logging.getLogger("stridewise")


class Watched:
    """A trainer's runs, one after another.

    `at_step` is the optimizer step, counted as the trainer does, that is recorded first; without it, the one after
    `warmup` steps of each run. The rest is what `stridewise.monitor` takes. `within` are packages of the trainer:
    warnings are shown at the line that called them.
    """

    def __init__(
        self, at_step: int | None, beside_checkpoints: bool, options: Options, within: Collection[str] = ()
    ) -> None:
        check_options(at_step=at_step, beside_checkpoints=beside_checkpoints)
        self.report: Report | None = None
        self.recorded_step: int | None = None
        self.notes: list[str] = []
        """What was not recorded in the run that began last, and why."""
        self._within = frozenset(within)
        self._at_step = at_step
        self._beside_checkpoints = beside_checkpoints
        self._options = options
        self._monitor: Monitor[Any] | None = None
        self._rank = 0
        Monitor(**options)  # what makes no sense is said now, not hours later

    def start(
        self,
        *,
        done: int,
        checkpoints: str | os.PathLike[str] | None,
        logs: list[Any],
        rank: int,
        ranks: int,
        short: bool = False,
        until: object = None,
    ) -> None:
        """A run begins after `done` steps of earlier ones.

        `checkpoints` is the folder where it keeps them, `logs` its own loggers. A `short` run is a trial of the code:
        its first step is recorded, and nothing written. `until` is something that lives as long as the run, for
        trainers that don't say that one has failed.
        """
        self.drop()
        options: Options = {**self._options}
        given = options.get("loggers") or ()
        options["loggers"] = [*logs, *(given if isinstance(given, (list, tuple)) else (given,))]
        if short:
            options["warmup"], options["folder"] = 0, None
        else:
            if options.get("folder") is None and self._beside_checkpoints:
                options["folder"] = checkpoints
            if self._at_step is not None:
                first = _first_from(self._at_step, done, options.get("every", 1000))
                if first is None:
                    self.notes = [f"at_step={self._at_step} lies behind, and every is None"]
                    _say_nothing_recorded(self.notes[0], rank)
                    return
                options["warmup"] = first - done - 1
        monitor: Monitor[Any] = Monitor(**options, job=Job(rank, ranks) if ranks > 1 else None)
        monitor.within |= self._within
        self._monitor, self.notes, self._rank = monitor, monitor.notes, rank
        if until is not None:
            weakref.finalize(until, _close, weakref.ref(monitor)).atexit = False

    def begin(self) -> None:
        """An optimizer step begins."""
        if self._monitor is not None:
            self._monitor.begin()

    def end(self, step: int) -> None:
        """The optimizer step of this number is over. Raises BudgetExceeded if the budget is to be kept."""
        monitor = self._monitor
        if monitor is None:
            return
        try:
            monitor.end(step)
        finally:
            if monitor.report is not self.report and monitor.report is not None:
                self.report, self.recorded_step = monitor.report, monitor.recorded_step

    def cancel(self, why: str) -> None:
        """Something else than a step goes on: `why` says what."""
        if self._monitor is not None:
            self._monitor.cancel(why)

    def stop(self) -> None:
        """The run is over. If nothing was recorded in it, that is said once."""
        monitor = self._monitor
        self.drop()
        if monitor is not None and (why := monitor.unrecorded):
            _say_nothing_recorded(why, self._rank)

    def drop(self) -> None:
        """The run is broken off."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None


class Watching:
    """What a callback tells of the run that it watches."""

    _watched: Watched

    @property
    def report(self) -> Report | None:
        """Of the step that was recorded last."""
        return self._watched.report

    @property
    def recorded_step(self) -> int | None:
        """Which one that was."""
        return self._watched.recorded_step

    @property
    def notes(self) -> list[str]:
        """What was not recorded in the run that began last, and why."""
        return self._watched.notes


def _close(monitor: weakref.ref[Monitor[Any]]) -> None:
    if (found := monitor()) is not None:
        found.close()


def _say_nothing_recorded(why: str, rank: int) -> None:
    if rank == 0:
        _log.warning("stridewise: nothing was recorded in this run: %s", why)


def _first_from(at_step: int, done: int, every: int | None) -> int | None:
    """The first step to record after `done` of them: `at_step`, or in a resumed run one of those that follow it."""
    if at_step > done:
        return at_step
    return None if every is None else at_step + every * ((done - at_step) // every + 1)


def peer(extra: str, *modules: str) -> Any:
    """The first of some modules that is installed. Raises ImportError that says what to install."""
    for name in modules:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # it is installed, and something that it needs is not
    package = modules[0].partition(".")[0]
    raise ImportError(f'{package} is not installed: pip install "stridewise[{extra}]"')
