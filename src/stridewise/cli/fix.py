"""`stridewise fix`."""

import math
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from stridewise.cli import completion
from stridewise.cli.options import Format, FormatOption, MinShareOption, OutputOption, QuietOption, configured
from stridewise.cli.output import destination, say, writable
from stridewise.cli.run import require_script
from stridewise.cli.show import is_brief, show_brief
from stridewise.cli.step_summary import append_summary
from stridewise.cli.trials import NOTHING_CHECKED, nothing_to_check, over_script, over_target
from stridewise.errors import StridewiseError, UsageError

if TYPE_CHECKING:
    from stridewise import api
    from stridewise.source.patch import Written

_TIME_LIMIT = 60.0
_NOT_WRITTEN = 2
_INTERRUPTED = 130
_TRY = "What to try"
_DO = "What to do with it"
_GIVEN = "stridewise.cli.fix.given"
_TARGET = re.compile(r"(?P<place>.+):(?P<name>[^:/\\]*)")


def _show_kinds(wanted: bool) -> None:
    if wanted:
        from stridewise.repair.kinds import all_kinds

        width = max(len(kind.name) for kind in all_kinds())
        say("\n".join(f"{kind.name:<{width}}  {kind.summary}" for kind in all_kinds()))
        raise typer.Exit


class _Command(TyperCommand):
    """Takes our options behind a target too: what follows it is not a script's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        ctx.meta[_GIVEN] = tuple(args)
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        argv = given.get("argv")
        if argv and not given.get("module") and _is_target(argv[0]):
            ctx.allow_interspersed_args = True
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def fix(
    context: typer.Context,
    argv: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET [ARGS]",
            help="path.py:name or package.module:name, a function that returns (model, args) or (model, args, kwargs),"
            " or runs a step; or a script, and all that follows it is the script's own.",
        ),
    ],
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="A step has a backward too, in the mode that the model is in; else it is put in evaluation.",
            rich_help_panel=_TRY,
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KIND",
            autocompletion=completion.kinds,
            help="Try edits of this kind only; channels_last for all kinds that begin so: would it help?"
            " May be repeated; --kinds lists them.",
            rich_help_panel=_TRY,
        ),
    ] = None,
    kinds: Annotated[
        bool,
        typer.Option(
            "--kinds",
            callback=_show_kinds,
            is_eager=True,
            help="List the kinds of edits that --only takes, and exit.",
            rich_help_panel=_TRY,
        ),
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help="How long recording and trials may take in all, once the program is loaded.",
            rich_help_panel=_TRY,
        ),
    ] = _TIME_LIMIT,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="How far a result may be off, as a share of its largest magnitude (as its dtype allows unless set).",
            rich_help_panel=_TRY,
        ),
    ] = None,
    library_copies: Annotated[
        bool | None,
        typer.Option("--library-copies", help="Count oneDNN's inner reorders too.", rich_help_panel=_TRY),
    ] = None,
    min_share: MinShareOption = None,
    module: Annotated[
        bool, typer.Option("-m", help="The script is a module's name, as after python -m.", rich_help_panel=_TRY)
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop",
            help="End the script, as by sys.exit(0) inside its loop, when all trials are done: code after the loop"
            " doesn't run. Without it the script goes on.",
            rich_help_panel=_TRY,
        ),
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the edits that win into your files.", rich_help_panel=_DO)
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if an edit would win.", rich_help_panel=_DO)
    ] = False,
    patch_dir: Annotated[
        Path | None,
        typer.Option(
            "--patch-dir",
            metavar="DIR",
            help="With --write: the folder for patches of installed packages (this one unless set).",
            rich_help_panel=_DO,
        ),
    ] = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Try edits, and show those that make a step faster.

    Each edit is timed against the unchanged program, in turn, in one process, and its results are compared. What wins
    is shown as a diff. No file is touched without --write, and files of installed packages never are: they get a patch.

    stridewise fix train.py:make takes a function that returns a model and its arguments, or runs a step by itself.
    stridewise fix train.py --epochs 1 runs a script, and tries edits in turn over its steps; options of ours stand
    before it.

    Exits with 0; with --check with 1 if an edit would win, and with 2 if nothing was tried; with 2 for a mistake in the
    call, a target that fails, and a report or edits that can't be written; after a script that failed with the script's
    own code. Ctrl-C ends the trials, and shows what was tried until then: 130.
    """
    target = _target(argv, module=module, train=train, stop=stop)
    _require_apart(write=write, check=check, patch_dir=patch_dir)
    _require_numbers(time_limit, tolerance)
    config = configured(min_share=min_share, library_copies=library_copies)
    output, patches = writable(output, format), _folder(patch_dir)

    from stridewise import api

    options: Any = {
        "only": tuple(only or ()),
        "time_limit": time_limit,
        "tolerance": tolerance,
        "library_copies": config.library_copies,
        "min_share": config.min_share,
    }
    code = 0
    repair: api.Repair | None
    if target is None:
        repair, code = over_script(argv, module=module, stop=stop, check=check, quiet=quiet, **options)
    else:
        repair = over_target(target, train=train, quiet=quiet, **options)
    if repair is not None:
        call = _writing(context.meta[_GIVEN], write=write, check=check)
        try:
            if not _finish(repair, format, output, call, patches if write else None, quiet=quiet):
                code = code or _NOT_WRITTEN
        except StridewiseError as error:  # the code of a script that failed counts before it
            print(f"stridewise: {error}", file=sys.stderr)
            code = code or _NOT_WRITTEN
        code = _INTERRUPTED if repair.interrupted else code or (_checked(repair) if check else 0)
    raise typer.Exit(code)


def _checked(repair: "api.Repair") -> int:
    """What --check exits with."""
    if repair.untried and not repair.trials:
        print(f"stridewise: {nothing_to_check(repair.notes[-1] if repair.notes else None)}", file=sys.stderr)
        return NOTHING_CHECKED
    return int(not repair.ok)


def _finish(
    repair: "api.Repair", format: Format, output: Path | None, call: str, patches: Path | None, *, quiet: bool
) -> bool:
    """Write the edits where that is asked for, and show everything; gives whether all of them could be written."""
    from stridewise.report import repair as repair_report

    written: Sequence[Written] = ()
    failure = None
    try:
        if patches is not None and repair.interrupted:
            print("stridewise: interrupted, so nothing is written", file=sys.stderr)
        elif patches is not None:
            written = repair.write(patches)
    except StridewiseError as error:
        failure = error
    if is_brief(format, output, quiet=quiet):
        show_brief(repair)
    else:
        with destination(output) as out:
            repair_report.render(repair, out, format=format.value, call=call, written=written)
        append_summary(format, lambda out: repair_report.render(repair, out, format="markdown"))
    if not quiet and (format is not Format.text or output is not None):
        for row in written:
            print(f"stridewise: {row.what}: {repair_report.fate(row)}", file=sys.stderr)
    if failure is not None:
        raise failure
    return all(row.what != "skipped" for row in written)


def _writing(given: Sequence[str], *, write: bool, check: bool) -> str:
    """This call with --write, for people to copy."""
    words = list(given) if write else ["--write", *given]
    if check:
        words.remove("--check")  # the first one is ours
    return shlex.join(["stridewise", "fix", *words])


# -------------------------------------------------------------------------------------------------------- what is asked


def _is_target(text: str) -> bool:
    return _TARGET.fullmatch(text) is not None and not Path(text).exists()


def _target(argv: Sequence[str], *, module: bool, train: bool, stop: bool) -> str | None:
    """The target, or None for a script. Raises UsageError for what is not there, and for what does not go with it."""
    given = argv[0]
    if not module and _is_target(given):
        _require_target(given)
        if len(argv) > 1:
            raise UsageError(f"{given} takes no arguments, and `{argv[1]}` is given: only a script has its own")
        if stop:
            raise UsageError(f"--stop ends a script, and {given} is none")
        return given
    if train:
        example = f"{given}:NAME" if given.endswith(".py") else "path.py:NAME"
        raise UsageError(f"--train is for a target such as {example}: a script has its own backward")
    if not module:
        _require_script(given)
    return None


def _require_apart(*, write: bool, check: bool, patch_dir: Path | None) -> None:
    if write and check:
        raise UsageError("--check only looks, and --write writes: give one of them")
    if patch_dir is not None and not write:
        raise UsageError("--patch-dir says where --write puts patches: give both, or neither")


def _require_target(target: str) -> None:
    match = _TARGET.fullmatch(target)
    assert match is not None
    place, name = match["place"], match["name"]
    path = Path(place)
    looks_like_file = place.endswith(".py") or "/" in place or "\\" in place
    if not name.replace(".", "").isidentifier():
        given = f"`{name}` in {target} is no function's name" if name else f"{target} names no function"
        raise UsageError(f"{given}: it reads {place}:NAME")
    if looks_like_file and not path.is_file():
        raise UsageError(f"there is no file {place}")
    if not looks_like_file and not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"{place} is neither a .py file nor a module's name")


def _require_script(script: str) -> None:
    if not Path(script).exists() and script.replace(".", "").isidentifier() and not script.endswith(".py"):
        raise UsageError(
            f"there is no script {script}",
            advice=f"for a module: stridewise fix -m {script}; for a function in it: stridewise fix {script}:NAME",
        )
    require_script(script, "fix")


def _require_numbers(time_limit: float, tolerance: float | None) -> None:
    if not 0 < time_limit < math.inf:
        raise UsageError(f"--time-limit {time_limit:g} is no time: give seconds, more than 0")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UsageError(f"--tolerance {tolerance:g} is no share: give a fraction such as 1e-5, or 0 for equal bits")


def _folder(path: Path | None) -> Path:
    """Where patches go, made when there is one; absolute now, since the program may change the folder."""
    folder = (path or Path()).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--patch-dir {path} is no folder")
    return folder


def register(app: typer.Typer) -> None:
    """Add the command. After a script's name no option is ours any more."""
    app.command(cls=_Command, context_settings={"allow_interspersed_args": False})(fix)
