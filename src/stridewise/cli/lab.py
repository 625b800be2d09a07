"""`stridewise lab`."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stridewise.cli.completion import experiments
from stridewise.cli.options import OutputOption
from stridewise.cli.output import destination, say, waiting, writable
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.lab.experiment import Experiment
    from stridewise.report.lab import Row


class LabFormat(StrEnum):
    """What `--format` takes; the names are those of `stridewise.report.lab.LabFormat`."""

    text = "text"
    json = "json"
    html = "html"


class LabDevice(StrEnum):
    """What `--device` takes."""

    cpu = "cpu"
    cuda = "cuda"


_SHOW = "What to show"
_INTERRUPTED = 128 + 2  # what a shell shows for a program that SIGINT ended


def lab(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Experiments, claims (C58) or sections (3.2); all unless named. With --compare, files.",
            autocompletion=experiments,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes and fewer rounds: under a minute.")] = False,
    device: Annotated[
        LabDevice, typer.Option("--device", help="Where tensors lie. The lab has not been run on a GPU yet.")
    ] = LabDevice.cpu,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", metavar="N", help="Threads of torch; unless set, one in a quick run, else torch's own number."
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments, and run none.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Lay results of several machines side by side, from files of --json.")
    ] = False,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Show what was measured; it is shown of up to three experiments anyway.",
            rich_help_panel=_SHOW,
        ),
    ] = False,
    format: Annotated[
        LabFormat | None,
        typer.Option(
            "--format",
            help="text for people, json for programs, html for a page; text unless set.",
            rich_help_panel=_SHOW,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_SHOW)] = False,
    html: Annotated[bool, typer.Option("--html", help="The same as --format html.", rich_help_panel=_SHOW)] = False,
    output: OutputOption = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the result as JSON too.", rich_help_panel=_SHOW),
    ] = None,
) -> None:
    """Measure the claims of an article about memory layout on this machine.

    Each experiment tests a few claims: arms are timed against each other in turn, their results compared, their copies
    counted. Claims hold, hold in part, don't hold, or cannot be tested here. All of it takes a minute or two on two
    cores; leave the machine alone meanwhile. Ctrl-C ends the run, and what was found until then is shown.
    """
    from stridewise import api
    from stridewise.report import lab as report

    if sum((json, html, format is not None)) > 1:
        raise UsageError("--json, --html and --format: give one of them.")
    format = LabFormat.json if json else LabFormat.html if html else format or LabFormat.text
    modes = {"--compare": compare, "--list": listing}
    running = {"--quick": quick, "--threads": threads is not None, "--device": device is LabDevice.cuda}
    _refuse(modes, {**running, "--save": save is not None})
    if listing:
        say("\n".join(report.listed(map(_row, api.experiments(names or [])), details=details)))
        return
    output, save = writable(output, format.value), writable(save, "json")
    if save is not None and output is not None and save.resolve() == output.resolve():
        raise UsageError("--save and --output name the same file.")
    if compare:
        from stridewise.report import lab_comparison

        if not names:
            raise UsageError("--compare needs the files of one run or more: stridewise lab --compare a.json b.json")
        beside = api.compare_labs(names)
        with destination(output) as out:
            lab_comparison.render(beside, out, format=format.value)
        return
    with waiting("Measuring …") as status:
        found = api.run_lab(
            names or [],
            device=device.value,
            quick=quick,
            threads=threads,
            progress=lambda number, count, title: status(f"Measuring {number + 1} of {count}: {title} …"),
        )
    with destination(output) as out:
        report.render(found, out, format=format.value, details=details or None)
    if save is not None:  # last: should it fail, what was measured has been shown
        with destination(save) as out:
            out.write(found.to_json())
    if not found.whole:
        raise typer.Exit(_INTERRUPTED)


def _refuse(modes: Mapping[str, bool], running: Mapping[str, bool]) -> None:
    """Options that a mode which runs nothing would ignore."""
    for mode, is_given in modes.items():
        others = [name for name, given in {**modes, **running}.items() if given and name != mode]
        if is_given and others:
            raise UsageError(f"{mode} runs nothing: leave {', '.join(others)} out.")


def _row(experiment: "Experiment") -> "Row":
    told = experiment.claims if experiment.told is None else experiment.told
    claims = [(number, claim.section, claim.text) for number, claim in experiment.claims.items() if number in told]
    return experiment.name, experiment.title, claims


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(lab)
