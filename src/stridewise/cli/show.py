"""What all commands with a report do at their end: show it, and hold it against the budget."""

import sys
from collections.abc import Collection
from pathlib import Path

from stridewise.cli.options import Format
from stridewise.cli.output import destination
from stridewise.config import Budget
from stridewise.report import Table, render
from stridewise.results import Report


def show(report: Report, format: Format, output: Path | None, *, tables: Collection[Table] = ()) -> None:
    """Write a report, with the tables that are asked for, to standard output or a file."""
    with destination(output) as out:
        render(report, format.value, out, tables=tables)


def within(budget: Budget, report: Report | None) -> bool:
    """Whether a budget is kept; says on stderr what is exceeded."""
    if report is None:
        lines: tuple[str, ...] = ("nothing was recorded",) if budget != Budget() else ()
    else:
        lines = budget.exceeded(report)
    for line in lines:
        print(f"stridewise: over budget: {line}", file=sys.stderr)
    return not lines
