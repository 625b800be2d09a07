"""Where the figures of a watched run go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from stridewise.errors import UsageError
from stridewise.report.scalars import line
from stridewise.results import Report

Scalars = Mapping[str, float]
Logger = Callable[[dict[str, float], int], object]
"""What takes the figures of a step by name, and the step's number: `wandb.log` and `mlflow.log_metrics` do."""

Told = Callable[[Report, dict[str, float], int], None]
"""The same with the report they are from."""


def adapted_all(loggers: Any) -> list[Told]:
    """What is called for one logger, several or none."""
    several = isinstance(loggers, (list, tuple, set, frozenset))
    return [adapted(logger) for logger in (loggers if several else () if loggers is None else (loggers,))]


def adapted(logger: Any) -> Told:
    """What is called for a logger: a `logging.Logger` or `Handler`, a `SummaryWriter`, or a function.

    Also an object with a method `log_metrics(figures, step)`, as Lightning's loggers have. Raises UsageError for
    anything else.
    """
    if isinstance(logger, (logging.Logger, logging.Handler)):
        return lambda report, figures, step: _to_logging(logger, report, figures, step)
    if callable(getattr(logger, "add_scalar", None)):
        return lambda report, figures, step: _to_writer(logger, figures, step)
    for call in (getattr(logger, "log_metrics", None), logger):
        if callable(call) and not isinstance(call, type):
            return _caller(call)
    raise UsageError(
        f"loggers holds {logger!r}.",
        expected="Expected: a SummaryWriter, a logging.Logger or Handler, or a function of figures and a step.",
    )


def _caller(call: Logger) -> Told:
    def tell(report: Report, figures: dict[str, float], step: int) -> None:
        call(dict(figures), step)

    return tell


def _to_writer(writer: Any, figures: Scalars, step: int) -> None:
    for name, value in figures.items():
        writer.add_scalar(name, value, step)


def _to_logging(target: logging.Logger | logging.Handler, report: Report, figures: Scalars, step: int) -> None:
    """One line for people, and `record.stridewise` for programs: a dict of the figures, and `step`."""
    level = logging.INFO if report.ok else logging.WARNING
    structured = {"step": step, **{name.rpartition("/")[2]: value for name, value in figures.items()}}
    if isinstance(target, logging.Logger):
        target.log(level, "%s", line(report, step), extra={"stridewise": structured})
    elif level >= target.level:
        record = logging.LogRecord("stridewise", level, __file__, 0, "%s", (line(report, step),), None)
        record.stridewise = structured
        target.handle(record)
