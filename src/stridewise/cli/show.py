"""What all commands with a report do at their end: show it, and hold it against the budget."""

import sys
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stridewise.cli.options import Format
from stridewise.cli.output import destination
from stridewise.cli.step_summary import append_summary
from stridewise.config import Budget
from stridewise.errors import UsageError
from stridewise.report import Table, render
from stridewise.report.headline import headline
from stridewise.report.text import one_line
from stridewise.results import Compiled, Report

if TYPE_CHECKING:
    from stridewise.report.brief import Brief


def show(
    report: Report, format: Format, output: Path | None, *, tables: Collection[Table] = (), quiet: bool = False
) -> None:
    """Write a report, with the tables that are asked for, to standard output or a file."""
    if is_brief(format, output, quiet=quiet):
        show_brief(report)
        return
    with destination(output) as out:
        render(report, format.value, out, tables=tables)
    if format is Format.html and output is not None and not quiet:
        print(f"stridewise: {headline(report)} The page is {output}.", file=sys.stderr)
    append_summary(format, lambda out: render(report, "markdown", out))


def show_compiled(
    results: Mapping[str, Compiled], format: Format, output: Path | None, *, code: bool = False, quiet: bool = False
) -> None:
    """Write what torch.compile did in one process, or in several, each under its file's name.

    Raises UsageError where several don't go into one document.
    """
    if len(results) > 1 and format in (Format.html, Format.sarif, Format.junit):
        raise UsageError(
            f"--format {format.value} takes the log of one process, and there are {len(results)}: name one file"
        )
    if is_brief(format, output, quiet=quiet):
        show_brief(*results.values())
        return
    from stridewise.report import compiled, json

    with destination(output) as out:
        if len(results) > 1 and format is Format.json:
            out.write(json.dumps(results))
            return
        for number, (name, result) in enumerate(results.items()):
            if len(results) > 1 and format is Format.text:
                out.write(f"{chr(10) if number else ''}{one_line(name)}\n")
            compiled.render(result, out, format=format.value, code=code)
    for result in results.values():
        append_summary(format, partial(compiled.render, result, format="markdown"))


def is_brief(format: StrEnum, output: Path | None, *, quiet: bool) -> bool:
    """Whether `--quiet` leaves lines alone: of text on standard output. Files and formats for programs stay whole."""
    return quiet and format == "text" and output is None


def show_brief(*results: "Brief") -> None:
    """Write a line for each thing to act on."""
    from stridewise.report import brief

    with destination(None) as out:
        for result in results:
            brief.render(result, out)


def within(budget: Budget, report: Report | None, prefix: str = "stridewise: ") -> bool:
    """Whether a budget is kept; says on stderr what is exceeded."""
    if report is None:
        lines: tuple[str, ...] = ("nothing was recorded",) if budget != Budget() else ()
    else:
        lines = budget.exceeded(report)
    for line in lines:
        print(f"{prefix}over budget: {line}", file=sys.stderr)
    return not lines
