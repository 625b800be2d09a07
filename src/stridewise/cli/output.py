"""Where reports go: standard output, or a file that is replaced as a whole."""

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import typer

from stridewise.errors import UsageError

_BROKEN_PIPE = 128 + 13  # what a shell shows for a program that SIGPIPE ended


def writable(path: Path | None) -> Path | None:
    """Make a path absolute, and raise UsageError now if nothing can be written there later."""
    if path is None:
        return None
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


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal that something takes its time; nothing anywhere else."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


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
