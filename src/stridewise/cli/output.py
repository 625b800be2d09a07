"""Where reports go: standard output, or a file that is replaced as a whole."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from stridewise.errors import UsageError
from stridewise.report.color import wants_color

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_BROKEN_PIPE = 128 + 13  # what a shell shows for a program that SIGPIPE ended


def writable(path: Path | None, format: str = "text") -> Path | None:
    """Make a path absolute, and raise UsageError now if nothing can be written there later.

    Nor is a page written to a terminal, where nobody can read it.
    """
    if path is None:
        if format == "html" and sys.stdout is not None and sys.stdout.isatty():
            raise UsageError("--format html makes a page for a browser: add --output report.html")
        return None
    if format == "text" and path.suffix.lower() in (".html", ".htm"):
        raise UsageError(f"{path.name} would hold plain text: add --format html")
    path = path.absolute()
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: give the name of a file in it")
        if _is_special(path):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # a pipe that nobody reads would block for ever
        else:
            # In the folder, because that is where the new file is made before it takes the old one's place.
            probe = _beside(path)
            probe.open("x").close()
            probe.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path


@contextmanager
def destination(path: Path | None) -> Iterator[TextIO]:
    """Open where a report goes: standard output without a path. A file appears when all of it is written."""
    if path is None:
        yield from _standard_output()
        return
    path = Path(os.path.realpath(path))
    try:
        if _is_special(path):
            with path.open("w", encoding="utf-8") as out:
                yield out
            return
        unfinished = _beside(path)
        try:
            with unfinished.open("x", encoding="utf-8", errors="backslashreplace") as out:
                yield out
            if path.exists():
                unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def say(text: str) -> None:
    """Write lines to standard output."""
    with destination(None) as out:
        out.write(f"{text}\n")


def terminal(*, quiet: bool = False) -> "Console | None":
    """The terminal that progress is drawn on; None where there is none that can, or nobody wants it."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from rich.console import Console

    return Console(stderr=True, no_color=not wants_color(sys.stderr))


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something takes its time, and what; nothing anywhere else."""
    console = terminal(quiet=quiet)
    if console is None:
        yield lambda _: None
        return
    with console.status(what) as status:
        yield status.update


@contextmanager
def bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Show on a terminal how far something is, told how much of how much is done; None anywhere else."""
    console = terminal(quiet=quiet)
    if console is None:
        yield None
        return
    with progress_bar(console) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def progress_bar(console: "Console") -> "Progress":
    """A bar that goes away when it is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, redirect_stdout=False)


def broken_pipe() -> int:
    """Leave quietly when whoever read our output has gone; gives the exit code."""
    # The interpreter flushes once more at its end, and would complain.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


def _standard_output() -> Iterator[TextIO]:
    out = sys.stdout
    if out is None or getattr(out, "closed", False):
        raise UsageError("standard output is closed: use --output FILE")
    try:
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")
        yield out
        out.flush()
    except BrokenPipeError:
        raise typer.Exit(broken_pipe()) from None
    except OSError as error:
        raise UsageError(f"standard output cannot be written: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    # A pipe, a terminal or /dev/stdout is written to, never replaced.
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
