"""What `stridewise trace` does with more than one file: read them all, on a cluster perhaps, and report on them."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stridewise.cli.options import Format
from stridewise.cli.output import bar, destination
from stridewise.cli.show import is_brief, show_brief
from stridewise.config import MOST, Budget, Config
from stridewise.errors import UsageError
from stridewise.report import Table
from stridewise.results import Fleet

if TYPE_CHECKING:
    from stridewise.report.fleet import FleetFormat

_MANY = "Many files"
_MOST_LINES = 10
FORMATS: "dict[str, FleetFormat]" = {
    "text": "text",
    "json": "json",
    "github": "github",
    "junit": "junit",
    "html": "html",
}

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Read them on this Dask cluster, whose workers see the same files: tcp://scheduler:8786. It runs code that"
        " it is sent, and this program runs what it sends: only for clusters that you trust.",
        rich_help_panel=_MANY,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=MOST,
        metavar="N",
        help="Read them in so many processes of this machine (as many as it has cores, unless set).",
        rich_help_panel=_MANY,
    ),
]


def show_fleet(
    files: Sequence[str],
    config: Config,
    format: Format,
    output: Path | None,
    *,
    cluster: str | None = None,
    workers: int | None = None,
    tables: Collection[Table] = (),
    quiet: bool = False,
    **analysis: Any,
) -> None:
    """Report on many files together. Exits with 1 if one of them exceeds the budget.

    `analysis` is what else `api.analyze_fleet` takes.
    """
    shown = FORMATS.get(format.value)
    if shown is None or tables:
        option = f"--format {format.value}" if shown is None else f"--{min(tables)}"
        raise UsageError(f"{option} takes one FILE, and {len(files)} are given: call once for each")
    if cluster is not None and workers is not None:
        raise UsageError("--workers is for this machine, and --cluster has its own: give one of them")

    from stridewise import api

    with bar(f"Reading {len(files)} files", quiet=quiet) as progress:
        fleet = api.analyze_fleet(
            files,
            cluster=cluster,
            workers=workers,
            min_share=config.min_share,
            select=config.select or None,
            ignore=config.ignore or None,
            budget=config.budget,
            progress=progress,
            **analysis,
        )
    write_fleet(fleet, format, output, quiet=quiet)
    if not _within(config.budget, fleet):
        raise typer.Exit(1)


def write_fleet(fleet: Fleet, format: Format, output: Path | None, *, quiet: bool = False) -> None:
    """Write a report on many files to standard output or a file."""
    from stridewise.report import fleet as fleet_report

    if is_brief(format, output, quiet=quiet):
        show_brief(fleet)
        _complain(fleet)
        return
    with destination(output) as out:
        fleet_report.render(fleet, out, format=FORMATS[format.value])


def _complain(fleet: Fleet) -> None:
    from stridewise.report.text import one_line

    for failed in fleet.failures:
        print(f"stridewise: {one_line(f'{failed.at.file}: {failed.message}')}", file=sys.stderr)


def _within(budget: Budget, fleet: Fleet) -> bool:
    """Whether every file keeps the budget; of one that could not be read nobody knows, so it does not."""
    from stridewise.report.text import one_line

    lines = [f"{row.at.file}: {line}" for row in fleet.rows for line in row.over_budget]
    if budget != Budget():
        lines += [f"{failed.at.file}: it could not be read" for failed in fleet.failures]
    for line in lines[:_MOST_LINES]:
        print(f"stridewise: over budget: {one_line(line)}", file=sys.stderr)
    if len(lines) > _MOST_LINES:
        print(f"stridewise: over budget: {len(lines) - _MOST_LINES} more lines such as these", file=sys.stderr)
    return not lines
