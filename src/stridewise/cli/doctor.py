"""`stridewise doctor`."""

from enum import StrEnum
from typing import Annotated

import typer

from stridewise.cli.options import OutputOption
from stridewise.cli.output import destination, waiting, writable


class DoctorFormat(StrEnum):
    """What `--format` takes; the names are those of `stridewise.report.doctor.DoctorFormat`."""

    text = "text"
    json = "json"
    html = "html"


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Leave the compiler out, which takes the longest.")] = False,
    format: Annotated[
        DoctorFormat,
        typer.Option(
            "--format", help="text for people, json for programs, html for a page.", rich_help_panel="What to show"
        ),
    ] = DoctorFormat.text,
    output: OutputOption = None,
) -> None:
    """Say what works on this machine, and what to install for the rest.

    Each thing is really tried, in a process of its own: recording a copy and finding its line, other threads, oneDNN,
    a GPU, gloo, and torch.compile. It takes some 15 seconds, with --quick a few.

    Exits with 1 if nothing can be recorded here: torch is not installed, or its profiler does not work.
    """
    from stridewise import api
    from stridewise.report import doctor as doctor_report

    output = writable(output)
    with waiting("Trying what this machine has …") as status:
        found = api.doctor(quick=quick, progress=lambda what: status(f"Trying {what} …"))
    with destination(output) as out:
        doctor_report.render(found, out, format=format.value)
    raise typer.Exit(int(not found.ok))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)
