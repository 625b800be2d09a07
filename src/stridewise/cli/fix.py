"""`stridewise fix`."""

import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from stridewise.cli.options import Format, FormatOption, MinShareOption, OutputOption, configured
from stridewise.cli.output import destination, writable
from stridewise.cli.run import require_script, restore
from stridewise.errors import StridewiseError, UsageError
from stridewise.results import Progress

if TYPE_CHECKING:
    from stridewise import api
    from stridewise.repair.code.patch import Written

_TIME_LIMIT = 60.0
_INTERRUPTED = 130
_TRY = "What to try"
_DO = "What to do with it"
_PHASES = {
    "recording": "Recording",
    "replaying": "Looking for slow kernels",
    "trying": "Trying edits",
    "together": "Trying winners together",
}
_GIVEN = "stridewise.cli.fix.given"
_TARGET = re.compile(r"(?P<place>.+):(?P<name>[^:/\\]*)")


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
        bool, typer.Option("--train", help="A step has a backward too (of a target's model).", rich_help_panel=_TRY)
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KIND",
            help="Try edits of this kind only, such as channels_last: would it help? May be repeated.",
            rich_help_panel=_TRY,
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="SECONDS", help="How long trials may take in all.", rich_help_panel=_TRY),
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
        typer.Option("--stop", help="End a script when all trials are done; else it goes on.", rich_help_panel=_TRY),
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
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Try edits, and show those that make a step faster.

    Each edit is timed against the unchanged program, in turn, in one process, and its results are compared. What wins
    is shown as a diff. No file is touched without --write, and files of installed packages never are: they get a patch.

    stridewise fix train.py:make takes a function that returns a model and its arguments, or runs a step by itself.
    stridewise fix train.py --epochs 1 runs a script, and tries edits in turn over its steps; options of ours stand
    before it.

    Exits with 0; with --check with 1 if an edit would win; after a script that failed with the script's own code.
    Ctrl-C ends the trials, and shows what was tried until then.
    """
    target = _target(argv, module=module, train=train, stop=stop)
    _require_apart(write=write, check=check, patch_dir=patch_dir)
    _require_numbers(time_limit, tolerance)
    config = configured(min_share=min_share, library_copies=library_copies)
    output, patches = writable(output), _folder(patch_dir)

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
        repair, code = _over_script(argv, module=module, stop=stop, **options)
    else:
        with _bar() as progress:
            repair = api.fix_target(target, train=train, progress=progress, **options)
    if repair is not None:
        call = _writing(context.meta[_GIVEN], write=write, check=check)
        try:
            _finish(repair, format, output, call, patches if write else None)
        except StridewiseError as error:
            if target is not None:
                raise
            # The script has run: its code counts, and 2 would say that it had not.
            print(f"stridewise: {error}", file=sys.stderr)
            code = code or 1
        code = _INTERRUPTED if repair.interrupted else code or int(check and not repair.ok)
    raise typer.Exit(code)


def _over_script(argv: list[str], **options: Any) -> "tuple[api.Repair | None, int]":
    from stridewise import api

    standard_output = sys.stdout
    repair, code, message = api.fix_script(argv, progress=_said(), **options)
    restore(standard_output)
    if message:
        print(f"stridewise: {message}", file=sys.stderr)
    return repair, code


def _finish(repair: "api.Repair", format: Format, output: Path | None, call: str, patches: Path | None) -> None:
    """Write the edits where that is asked for, and show everything, even if they can't be written."""
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
    with destination(output) as out:
        repair_report.render(repair, out, format=format.value, call=call, written=written)
    if format is not Format.text or output is not None:
        for row in written:
            print(f"stridewise: {row.what}: {repair_report.fate(row)}", file=sys.stderr)
    if failure is not None:
        raise failure


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
    folder = (path or Path()).absolute()
    if path is not None and not folder.is_dir():
        raise UsageError(f"--patch-dir {path} is no folder")
    return folder


# ------------------------------------------------------------------------------------------------------------- progress


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar on a terminal; nothing anywhere else.

    It is drawn between trials only: a thread that draws at any time would be in what is measured.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[detail]}", markup=False),
    )
    console = Console(stderr=True)
    quiet: Any = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False, "transient": True}
    with Bar(*columns, console=console, **quiet) as bar:
        task = bar.add_task(_PHASES["recording"], total=None, detail="")

        def show(progress: Progress) -> None:
            total = progress.total or None
            bar.update(task, description=_PHASES[progress.phase], completed=progress.done, total=total)
            bar.update(task, detail=_detail(progress))
            bar.refresh()

        bar.refresh()
        yield show


def _said() -> Callable[[Progress], None] | None:
    """Lines on a terminal: a bar would be torn by what the script writes."""
    if not sys.stderr.isatty():
        return None
    last: list[object] = [None]
    stream = sys.stderr

    def say(progress: Progress) -> None:
        key = progress.phase, progress.what, progress.done
        if key == last[0]:
            return
        last[0] = key
        with suppress(OSError, ValueError):  # the script may have closed it
            print(f"stridewise: {_PHASES[progress.phase].lower()} {_detail(progress)}".rstrip(), file=stream)

    return say


def _detail(progress: Progress) -> str:
    from stridewise.report.text import one_line, shorten

    of = f"{min(progress.done + 1, progress.total)} of {progress.total}" if progress.total else ""
    speed = f"{1 / progress.ratio:.2f}x" if progress.ratio else ""
    return shorten(", ".join(filter(None, (of, speed, one_line(progress.what or "")))), 64)


def register(app: typer.Typer) -> None:
    """Add the command. After a script's name no option is ours any more."""
    app.command(cls=_Command, context_settings={"allow_interspersed_args": False})(fix)
