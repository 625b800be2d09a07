"""`monitor()`: what a person calls, and what it can be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypedDict, Unpack

from stridewise.api.monitoring.loop import Batch, Monitor, OnExcess
from stridewise.api.recordings import Report
from stridewise.config import Budget


class Options(TypedDict, total=False):
    """What a monitor can be told: see `monitor`."""

    every: int | None
    warmup: int
    max_overhead: float | None
    budget: Budget | str
    on_excess: OnExcess
    loggers: Any
    on_report: Callable[[Report, int], object] | None
    folder: str | os.PathLike[str] | None
    formats: Collection[str]
    recordings: bool | None
    keep: int | None
    library_copies: bool
    max_ops: int
    min_share: float
    select: Collection[str] | None
    ignore: Collection[str] | None


def monitor(loader: Iterable[Batch] | None = None, **options: Unpack[Options]) -> Monitor[Batch]:
    """Watch a training loop: one step of `every` is recorded and analysed, and what layout costs in it told.

    Around a loop, `with monitor() as watch`, and `watch.step()` at the end of each step; or around a loader,
    `for batch in monitor(loader)`, which says so itself. The first step that is recorded is the one after `warmup`
    steps (and never the first of all); `every=None` records that one only. All that recordings cost stays below
    `max_overhead` of the time the loop runs: they are made less often than `every` says where that takes more, and the
    first one is paid for by those after it coming later. In a job of many ranks all record the same steps, and nothing
    is pushed back.

    `loggers` are told the figures: a `SummaryWriter`, a `logging.Logger` or `Handler`, an object with a
    `log_metrics(figures, step)`, or a function of the figures and the step, such as `wandb.log`; one or several.
    `on_report(report, step)` is called with each report; what it raises ends the loop. `budget` reads as for
    `stridewise run`; over it there is a LayoutWarning, or with `on_excess="raise"` BudgetExceeded.

    With a `folder` the reports of the last `keep` recorded steps are written there in the `formats`
    (`stridewise-step-000123.html`, `.json`), and with `recordings` the recordings, as `.json.gz`; in a job of many
    ranks each rank writes its own, `stridewise-step-000123/rank0.json.gz`, unless `recordings` is False.

    The loop is never broken: if something of this fails it is logged once, and the monitor is off. A step during which
    another profiler or recording runs is skipped. Under `stridewise run` nothing is recorded here. Raises UsageError
    for options that make no sense.
    """
    return Monitor(loader, **options)
