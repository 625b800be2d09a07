"""`stridewise trace`."""

from pathlib import Path
from typing import Annotated

import typer

from stridewise.cli.options import (
    BudgetOption,
    CopiesOption,
    Format,
    FormatOption,
    IgnoreOption,
    MinShareOption,
    ModulesOption,
    OutputOption,
    SelectOption,
    configured,
)
from stridewise.cli.output import destination, waiting, writable
from stridewise.cli.show import within
from stridewise.errors import UsageError


def trace(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Recordings, or traces of torch.profiler.")],
    min_share: MinShareOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    budget: BudgetOption = None,
    modules: ModulesOption = False,
    copies: CopiesOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Report on recordings and profiler traces.

    Traces that torch.profiler wrote elsewhere are welcome; torch itself is not needed to read them.

    Exits with 1 if a budget is exceeded.
    """
    from stridewise import api
    from stridewise.report import render
    from stridewise.report.text import one_line

    if len(files) > 1 and format in (Format.json, Format.sarif):
        raise UsageError(f"--format {format.value} takes one FILE, and {len(files)} are given: call once for each")
    config = configured(select=select, ignore=ignore, min_share=min_share, budget=budget)
    output = writable(output)
    reports = []
    for file in files:
        with waiting(f"Reading {one_line(file.name)} …"):
            reports.append(
                api.analyze(
                    file,
                    min_share=config.min_share,
                    select=config.select or None,
                    ignore=config.ignore or None,
                )
            )
    with destination(output) as out:
        for number, (file, report) in enumerate(zip(files, reports, strict=True)):
            if len(files) > 1 and format is Format.text:
                out.write(("\n" if number else "") + f"== {one_line(str(file))}\n\n")
            render(report, format.value, out, copies=copies, modules=modules)
    kept = [within(config.budget, report) for report in reports]
    if not all(kept):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trace)
