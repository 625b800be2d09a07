"""`stridewise run`."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from stridewise.cli import ranks
from stridewise.cli.options import (
    AutocastOption,
    BudgetOption,
    CopiesOption,
    Format,
    FormatOption,
    IgnoreOption,
    KernelsOption,
    MinShareOption,
    ModulesOption,
    OutputOption,
    PathsOption,
    QuietOption,
    SelectOption,
    asked,
    configured,
    with_budget,
)
from stridewise.cli.output import writable
from stridewise.cli.ranks import find_place, require_fleet_format
from stridewise.cli.show import show, show_compiled, within
from stridewise.config import MOST
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.recording.handle import Recording

_RECORD = "What to record"
_NOT_WRITTEN = 2


def run(
    argv: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]", help="The script; all that follows it is the script's own."),
    ],
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is a module's name, as after `python -m`.", rich_help_panel=_RECORD)
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST, metavar="N", help="How many steps to record (3 unless set).", rich_help_panel=_RECORD
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            metavar="N",
            help="How many steps to let pass before that (2 unless set).",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    module_step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A step is one call of this module: a dotted path in the model, or a class name.",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FOLDER/",
            help="Keep the recording: a profiler trace that `stridewise trace` and Perfetto open. In a folder each rank"
            " of a job has its own.",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    library_copies: Annotated[
        bool | None,
        typer.Option("--library-copies", help="Record oneDNN's inner reorders too.", rich_help_panel=_RECORD),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Tell what torch.compile made of the script too: its graphs, kernels and copies. Caches are not used.",
            rich_help_panel=_RECORD,
        ),
    ] = False,
    max_ops: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            metavar="N",
            help="Stop recording after so many ops (200000 unless set).",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    min_share: MinShareOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    budget: BudgetOption = None,
    modules: ModulesOption = False,
    paths: PathsOption = False,
    autocast: AutocastOption = False,
    copies: CopiesOption = False,
    kernels: KernelsOption = False,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Run a script, record a few of its steps, and report.

    The script runs as python would run it: stridewise run train.py --epochs 1, or stridewise run -m package.module.
    When it has ended the report goes to standard output, after what the script wrote there; --output FILE keeps them
    apart, as --format json wants it.

    On many ranks: torchrun --nproc-per-node 4 -m stridewise run --save recordings/ train.py. Every rank records the
    same steps and keeps them in the folder; rank 0 alone reports, on all of them, and names those that are missing.

    Exits with the script's own code. If the script ended well: with 1 if a budget is exceeded, with 2 if the report or
    the recording can't be written.
    """
    config = configured(
        select=select,
        ignore=ignore,
        min_share=min_share,
        budget=budget,
        steps=steps,
        warmup=warmup,
        module_step=module_step,
        library_copies=library_copies,
        max_ops=max_ops,
    )
    config = with_budget(config, budget, looks_at=("recordings", "compiled") if compiled else ("recordings",))
    if not module:
        require_script(argv[0])
    # Made absolute now: the script may change the folder.
    place = find_place(save)
    tables = asked(autocast=autocast, copies=copies, kernels=kernels, modules=modules, paths=paths)
    if place.folder is not None:
        require_fleet_format(format, (*tables, *(["compiled"] if compiled else [])))
    output = writable(output, format) if place.reports else None

    from stridewise import api

    standard_output = sys.stdout

    def report_on_all() -> bool:
        restore(standard_output)
        return ranks.report_on_all(place, config, format, output, quiet=quiet)

    limits: dict[str, Any] = {
        "min_share": config.min_share,
        "select": config.select or None,
        "ignore": config.ignore or None,
        "kernel_patterns": config.kernel_patterns,
        "paths": paths,
        "timeline": format is Format.html,
    }

    def report_once_ended(recording: "Recording | None") -> None:
        if not report_on_all() and recording is not None:
            show(api.analyze(recording, **limits), format, output, quiet=quiet)

    if place.folder is not None:
        ranks.catch_termination(place, report_once_ended)
    outcome = api.run_script(
        argv,
        module=module,
        steps=config.steps,
        warmup=config.warmup,
        module_step=config.module_step,
        save=place.file,
        library_copies=config.library_copies,
        max_ops=config.max_ops,
        compiled=compiled,
        **limits,
    )
    restore(standard_output)
    code = outcome.exit_code
    if outcome.message:
        print(f"{place.prefix}{outcome.message}", file=sys.stderr)
    try:
        if place.reports and not (place.folder is not None and report_on_all()):
            if outcome.report is not None:
                show(outcome.report, format, output, tables=tables, quiet=quiet)
            elif outcome.compiled is not None:
                show_compiled({"": outcome.compiled}, format, output, quiet=quiet)
    except UsageError as error:  # that of a script that failed counts before it
        print(f"stridewise: {error}", file=sys.stderr)
        code = code or _NOT_WRITTEN
    if not outcome.saved:
        code = code or _NOT_WRITTEN
    if place.job.ranks > 1 and place.reports and place.folder is None:
        print(
            f"stridewise: this is of rank 0 of {place.job.ranks}; --save FOLDER/ brings all together", file=sys.stderr
        )
    if not within(config.budget, outcome.report, place.prefix):
        code = code or 1
    raise typer.Exit(code)


def restore(standard_output: TextIO) -> None:
    """Report where a script without ideas of its own would have written, not to what it put in the place of that."""
    if sys.stdout is not standard_output:
        with suppress(Exception):  # it may be anything
            sys.stdout.flush()
        sys.stdout = standard_output


def require_script(script: str, command: str = "run") -> None:
    """Raise UsageError, before anything runs, if there is no such script for a command."""
    path = Path(script)
    if not path.exists():
        hint = f"for a module: stridewise {command} -m {script}" if script.replace(".", "").isidentifier() else None
        raise UsageError(f"there is no script {script}", advice=hint if not script.endswith(".py") else None)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{script} is a folder without a __main__.py")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{script} cannot be read")


def register(app: typer.Typer) -> None:
    """Add the command. After the script's name no option is ours any more."""
    app.command(context_settings={"allow_interspersed_args": False})(run)
