"""`stridewise check op`, `stridewise check model` and `stridewise check artefact`."""

import os
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stridewise.cli.options import (
    Format,
    FormatOption,
    IgnoreOption,
    OutputOption,
    QuietOption,
    SelectOption,
    configured,
)
from stridewise.cli.output import bar, destination, waiting, writable
from stridewise.cli.show import is_brief, show_brief
from stridewise.cli.step_summary import append_summary
from stridewise.cli.targets import targets_own
from stridewise.config import MOST
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.api import Artefact, Conformance
    from stridewise.report.checks_exchange import Checked

_RUN = "What to run"
_INTERRUPTED = 130
_CALLERS = (
    "source/target.py",
    "checks/operators/load.py",
    *(f"checks/preflight/{file}.py" for file in ("load", "trial", "check")),
)

app = typer.Typer(name="check", help="Find where layout makes results wrong, before it does.", no_args_is_help=True)


@app.command()
def op(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="path.py:name or package.module:name of a function, a method, a module, an autograd.Function, or an"
            " operator of torch.library.",
        ),
    ],
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="path.py:function",
            help="A function that returns the arguments: a tuple, a dict of keyword arguments, or both as a pair."
            " Without it, NAME_sample beside the operator.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    gradients: Annotated[
        bool,
        typer.Option("--gradients/--no-gradients", help="Run the backward too, where one is.", rich_help_panel=_RUN),
    ] = True,
    second_order: Annotated[
        bool, typer.Option("--second-order", help="And gradients of gradients.", rich_help_panel=_RUN)
    ] = False,
    fake: Annotated[
        bool,
        typer.Option(
            "--fake/--no-fake",
            help="Compare with the strides that a fake (meta) kernel promises to compilers.",
            rich_help_panel=_RUN,
        ),
    ] = True,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="How far a result may be off, as a share of its largest magnitude (as its dtype allows unless set).",
            rich_help_panel=_RUN,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="After which one run counts as hung.", rich_help_panel=_RUN),
    ] = 10.0,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="SECONDS", help="How long all runs may take.", rich_help_panel=_RUN),
    ] = 60.0,
    contract: Annotated[
        bool,
        typer.Option(
            "--contract",
            help="Write the decorator that would keep out the layouts which it can't take, and try it.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    cases: Annotated[
        bool, typer.Option("--cases", help="List every layout that was tried.", rich_help_panel="What to show")
    ] = False,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Run an operator over many layouts of the same values, and compare.

    Results, what is written in place or into out=, and gradients are held against those of contiguous operands; values
    around each tensor show what reaches outside of it. All of it runs in a child process: a crash is only a verdict.
    What is wrong is shown with the smallest layout that shows it, as a program to run.

    stridewise check op kernels.py:scale takes its arguments from kernels.py:scale_sample.

    Exits with 1 if there is an error or a warning.
    """
    config = configured(select=select, ignore=ignore, finds=("check",))
    output = writable(output, format)

    from stridewise import api

    with targets_own(_CALLERS), redirect_stdout(sys.stderr), bar("Running over layouts", quiet=quiet) as progress:
        found = api.check_op_target(
            target,
            sample=sample,
            gradients=gradients,
            second_order=second_order,
            fake=fake,
            tolerance=tolerance,
            timeout=timeout,
            time_limit=time_limit,
            contract=contract,
            select=config.select or None,
            ignore=config.ignore or None,
            progress=progress,
        )
    _show(found, format, output, quiet=quiet, cases=cases)
    _require_compared(found, f"`{found.op}`")
    raise typer.Exit(_INTERRUPTED if found.interrupted else int(not found.ok))


@app.command()
def model(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="path.py:name or package.module:name, a function that returns a dict with any of model, optimizer,"
            " loader, process_group, sample, loss, state_dict, or just a model.",
        ),
    ],
    batches: Annotated[
        int,
        typer.Option(
            "--batches", min=1, max=MOST, help="How many batches of the loader to look at.", rich_help_panel=_RUN
        ),
    ] = 2,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Look at a model, its optimizer and its data for what layout will make wrong or refuse.

    With a sample, the arguments of the model, a forward and a backward are tried. The model is left as it was.

    stridewise check model train.py:parts calls a function that returns {"model": model, "optimizer": optimizer,
    "loader": loader, "sample": (images,)}, or some of these.

    Exits with 1 if there is an error or a warning.
    """
    config = configured(select=select, ignore=ignore, finds=("check",))
    output = writable(output, format)

    from stridewise import api

    with targets_own(_CALLERS), redirect_stdout(sys.stderr), waiting("Looking at the model …", quiet=quiet):
        found = api.preflight_target(
            target, batches=batches, select=config.select or None, ignore=config.ignore or None
        )
    _show(found, format, output, quiet=quiet)
    raise typer.Exit(int(not found.ok))


@app.command()
def artefact(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .pt2 of torch.export.save or AOTInductor, or a TorchScript file. It is EXECUTED: a file may hold"
            " any code.",
        ),
    ],
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="path.py:function",
            help="A function that returns its arguments: a tuple, a dict of keyword arguments, or both as a pair."
            " Without it, those that the file keeps, or random numbers of the sizes that it tells.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="path.py:name",
            help="The eager module that it was made from, its class, or a function that returns it: layouts are held"
            " against that too.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="How far a result may be off, as a share of its largest magnitude (as its dtype allows unless set).",
            rich_help_panel=_RUN,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="After which one run counts as hung.", rich_help_panel=_RUN),
    ] = 10.0,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="SECONDS", help="How long all runs may take.", rich_help_panel=_RUN),
    ] = 60.0,
    guard: Annotated[
        Path | None,
        typer.Option(
            "--guard",
            metavar="FILE.py",
            help="Write the guard, a module that gives it inputs in the layouts that it was made for, or raises.",
            rich_help_panel="What to show",
        ),
    ] = None,
    cases: Annotated[
        bool, typer.Option("--cases", help="List every layout that was tried.", rich_help_panel="What to show")
    ] = False,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Which input layouts an exported program was made for, and what it does with others.

    The file is executed, in a child process, over many layouts of the same values: it may be right, refuse them with a
    clear error, or be wrong without one. Run only files that you would run anyway.

    stridewise check artefact model.pt2 --model net.py:Net also tells which branches on layout were fixed at export.

    Exits with 1 if there is an error or a warning.
    """
    config = configured(select=select, ignore=ignore, finds=("check",))
    if guard is not None:
        _require_other(guard, file, *(Path(target.rpartition(":")[0]) for target in (sample, model) if target))
    output, guard = writable(output, format), writable(guard)

    from stridewise import api

    with targets_own(_CALLERS), redirect_stdout(sys.stderr), bar("Running over layouts", quiet=quiet) as progress:
        found = api.check_export_file(
            file,
            sample=sample,
            model=model,
            tolerance=tolerance,
            timeout=timeout,
            time_limit=time_limit,
            select=config.select or None,
            ignore=config.ignore or None,
            progress=progress,
        )
    _show(found, format, output, quiet=quiet, cases=cases)
    if guard is not None:
        _write_guard(found, guard, quiet=quiet)
    _require_compared(found, "it")
    raise typer.Exit(_INTERRUPTED if found.interrupted else int(not found.ok))


def _require_compared(found: "Conformance | Artefact", what: str) -> None:
    """Raise UsageError, once all is shown, if that nothing is wrong means nothing."""
    if found.interrupted or not found.ok:
        return
    if not found.cases:
        raise UsageError("no run was made within the time limit: give a longer --time-limit")
    if not found.compared:
        raise UsageError(f"nothing was compared: {what} gives no tensor, or other values at each call")


def _require_other(guard: Path, *files: Path) -> None:
    """Raise UsageError if a guard would take the place of a file that is read."""
    for file in files:
        with suppress(OSError):
            if os.path.realpath(guard) == os.path.realpath(file) or os.path.samefile(guard, file):
                raise UsageError(f"--guard {guard} is {file} itself: give the guard a file of its own")


def _write_guard(found: "Artefact", path: Path, *, quiet: bool) -> None:
    """Write it, and say so, or why there is none."""
    if found.guard is not None:
        with destination(path) as out:
            out.write(found.guard)
        if not quiet:
            print(f"stridewise: the guard is in {path}", file=sys.stderr)
    elif found.interrupted:
        print("stridewise: no guard was written: it was interrupted", file=sys.stderr)
    elif found.cases and not quiet:
        print(
            "stridewise: no guard is needed, and none was written: every layout that was tried is right",
            file=sys.stderr,
        )


def _show(result: "Checked", format: Format, output: Path | None, *, quiet: bool, **options: Any) -> None:
    if is_brief(format, output, quiet=quiet):
        show_brief(result)
        return
    from stridewise.report import checks

    with destination(output) as out:
        checks.render(result, out, format=format.value, **options)
    append_summary(format, lambda out: checks.render(result, out, format="markdown"))


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app)
