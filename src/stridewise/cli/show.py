"""What all commands with a report do at their end: show it, and hold it against the budget."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from stridewise.cli.options import Format
from stridewise.cli.output import destination
from stridewise.config import Budget
from stridewise.report import Table, render
from stridewise.report.text import one_line
from stridewise.results import Compiled, Report


def show(report: Report, format: Format, output: Path | None, *, tables: Collection[Table] = ()) -> None:
    """Write a report, with the tables that are asked for, to standard output or a file."""
    with destination(output) as out:
        render(report, format.value, out, tables=tables)


def show_compiled(results: Mapping[str, Compiled], format: Format, output: Path | None, *, code: bool = False) -> None:
    """Write what torch.compile did in one process, or in several, each under its file's name."""
    from stridewise.report import compiled, json

    with destination(output) as out:
        if len(results) > 1 and format is Format.json:
            out.write(json.dumps(results))
            return
        for number, (name, result) in enumerate(results.items()):
            if len(results) > 1 and format is Format.text:
                out.write(f"{chr(10) if number else ''}{one_line(name)}\n")
            compiled.render(result, out, format=format.value, code=code)


def within(budget: Budget, report: Report | None) -> bool:
    """Whether a budget is kept; says on stderr what is exceeded."""
    if report is None:
        lines: tuple[str, ...] = ("nothing was recorded",) if budget != Budget() else ()
    else:
        lines = budget.exceeded(report)
    for line in lines:
        print(f"stridewise: over budget: {line}", file=sys.stderr)
    return not lines
