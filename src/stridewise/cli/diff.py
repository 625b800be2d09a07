"""`stridewise diff`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stridewise.cli.options import IgnoreOption, MinShareOption, OutputOption, QuietOption, SelectOption, configured
from stridewise.cli.output import destination, waiting, writable
from stridewise.cli.show import is_brief, show_brief
from stridewise.cli.step_summary import append_summary
from stridewise.config import parse_share
from stridewise.errors import UsageError


class DiffFormat(StrEnum):
    """What `--format` takes; the names are those of `stridewise.report.diff.DiffFormat`."""

    text = "text"
    json = "json"
    github = "github"
    junit = "junit"
    markdown = "markdown"
    html = "html"


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A recording, a trace, or a report as JSON.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="What to compare with it; of any of these kinds.")],
    tolerance: Annotated[
        str,
        typer.Option(metavar="SHARE", help="By how much copies and bytes a step may grow (5% or 0.05)."),
    ] = "0",
    min_share: MinShareOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    format: Annotated[
        DiffFormat,
        typer.Option(
            "--format",
            help="text for people, json for programs, github for annotations in Actions, junit for test reports in CI,"
            " markdown for pages of CI and pull requests, html for a page to open in a browser.",
            rich_help_panel="What to show",
        ),
    ] = DiffFormat.text,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what got worse between two recordings.

    Figures are per step, so that recordings of different length compare; findings are matched by place and operator,
    so that lines may move. A report is what --format json wrote. With --select or --ignore the copies and bytes of the
    findings that are left are compared.

    Exits with 1 if a step has more copies, moves more bytes, or gives wrong results in a new place. Time is shown, not
    judged: it differs from run to run. Where the two have different numbers of steps, less than one copy a step does
    not count.
    """
    from stridewise import api
    from stridewise.report import diff as diff_report
    from stridewise.report.text import one_line

    allowed = _share(tolerance)
    config = configured(select=select, ignore=ignore, min_share=min_share)
    output = writable(output, format)
    with waiting(f"Comparing {one_line(old.name)} with {one_line(new.name)} …", quiet=quiet):
        found = api.diff(
            old,
            new,
            tolerance=allowed,
            min_share=config.min_share,
            select=config.select or None,
            ignore=config.ignore or None,
        )
    if is_brief(format, output, quiet=quiet):
        show_brief(found)
    else:
        with destination(output) as out:
            diff_report.render(found, out, format=format.value)
        append_summary(format, lambda out: diff_report.render(found, out, format="markdown"))
    if not found.ok:
        raise typer.Exit(1)


def _share(text: str) -> float:
    try:
        return parse_share(text)
    except UsageError:
        raise UsageError(f"--tolerance `{text}` is no share from 0 to 100 %: it reads 5% or 0.05") from None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diff)
