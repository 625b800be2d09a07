"""Runs the trials of `fix` over a target or a script, and shows on a terminal how far they are."""

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stridewise.cli.output import terminal
from stridewise.cli.run import restore
from stridewise.cli.targets import targets_own
from stridewise.results import Progress

if TYPE_CHECKING:
    from stridewise import api

NOTHING_CHECKED = 2
"""The exit code of --check where nothing was tried."""
_PHASES = {
    "recording": "Recording",
    "replaying": "Looking for slow kernels",
    "trying": "Trying edits",
    "together": "Trying winners together",
}
_CALLERS = ("source/target.py", "repair/trial/start.py", "repair/trial/workload.py")


def over_target(target: str, *, quiet: bool = False, **options: Any) -> "api.Repair":
    """Try a target. What it writes goes to stderr; what it raises is shown as its own, and is a UsageError."""
    from stridewise import api

    with targets_own(_CALLERS), _bar(quiet=quiet) as progress, redirect_stdout(sys.stderr):
        return api.fix_target(target, progress=progress, **options)


def over_script(
    argv: list[str], *, check: bool, quiet: bool = False, **options: Any
) -> "tuple[api.Repair | None, int]":
    """Try a script: what came of it, and its exit code. What else there is to say goes to stderr."""
    from stridewise import api

    standard_output = sys.stdout
    script, given = Path(argv[0]).absolute(), argv[0]  # now: the script may change the folder, and its arguments
    repair, code, message = api.fix_script(argv, progress=None if quiet else _said(), **options)
    restore(standard_output)
    if repair is None and not code:
        if check:
            code = NOTHING_CHECKED
            message = nothing_to_check(message)
        if not options["module"] and (function := _plausible(script)) is not None:
            hint = f"for a function in it: stridewise fix {given}:{function}"
            message = f"{message}\n{hint}" if message else hint
    if message:
        print(f"stridewise: {message}", file=sys.stderr)
    return repair, code


def nothing_to_check(why: str | None) -> str:
    """The line that says so."""
    because = f": {why.removeprefix('Nothing was tried: ').rstrip('.')}" if why else ""
    return f"nothing was tried, so there is nothing to check{because}"


def _plausible(script: Path) -> str | None:
    """The first function of a script that could be a target: public, and without parameters that it needs."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name != "main" and not node.name.startswith("_"):
            given = node.args
            needed = len(given.posonlyargs) + len(given.args) - len(given.defaults) + given.kw_defaults.count(None)
            if not needed:
                return node.name
    return None


# ------------------------------------------------------------------------------------------------------------- progress


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A bar on a terminal; nothing anywhere else.

    It is drawn between trials only: a thread that draws at any time would be in what is measured.
    """
    console = terminal(quiet=quiet)
    if console is None:
        yield None
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[detail]}", markup=False),
    )
    options: Any = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False, "transient": True}
    with Bar(*columns, console=console, **options) as bar:
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
