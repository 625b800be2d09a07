"""Tries things in child processes: one that crashes or hangs is a line of the report, and the next one goes on."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from stridewise.checks.machine.probes import PROBES
from stridewise.results.doctor import Ability

_ROOT = Path(__file__).parents[3]
_START_S = 60.0
"""How long Python and torch may take to be imported, before the first probe."""
_GRACE_S = 5.0
_TORCH, _COMPILE = "torch", "compile"
_CHILD = "import sys; sys.path.append({root!r}); from stridewise.checks.machine.probes import main; main(sys.argv[1:])"
_decoder = msgspec.json.Decoder(list[Ability])


def examine(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> tuple[Ability, ...]:
    """Try all that there is; `quick` leaves the compiler out. `progress` is told what is tried.

    Where torch can't even be imported, that is all there is to say.
    """
    names = [name for name in PROBES if name != _COMPILE]
    lanes = [names] if quick else [names, [_COMPILE]]  # it takes as long as all the others
    tell = progress or (lambda _: None)
    with ThreadPoolExecutor(len(lanes)) as pool:
        first, *rest = [pool.submit(_tried, lane, tell) for lane in lanes]
        rows = first.result()
        if not _has_no_torch(rows):
            rows += [row for lane in rest for row in lane.result()]
    return tuple(rows)


def _has_no_torch(rows: Sequence[Ability]) -> bool:
    return any(row.name == _TORCH and row.health != "works" for row in rows)


def _tried(names: Sequence[str], tell: Callable[[str], None]) -> list[Ability]:
    """What each probe saw. All run in one process, as long as none ends it: then the next goes on in another."""
    rows: list[Ability] = []
    waiting = list(names)
    while waiting and not _has_no_torch(rows):
        with _child(waiting) as (process, answers, errors):
            start = _START_S
            while waiting and not _has_no_torch(rows):
                name, probe = waiting[0], PROBES[waiting[0]]
                tell(name)
                line = _line(answers, start + probe.seconds)
                del waiting[0]
                if line is None or not line.endswith(b"\n"):
                    rows += probe.failed(_end(process, errors, hung=line is None))
                    break
                rows += _decoder.decode(line)
                start = 0.0
    return rows


@contextmanager
def _child(names: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int, BinaryIO]]:
    """A process that tries these, the end of the pipe that it answers into, and the file of what it complains of."""
    reading, writing = os.pipe()
    # -P: a queue.py in the current folder is no part of what is tried.
    options = ["-P", *(["-X", "no_debug_ranges"] if "no_debug_ranges" in sys._xoptions else [])]
    code = _CHILD.format(root=str(_ROOT))
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *options, "-c", code, str(writing), *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        try:
            yield process, reading, errors
        finally:
            os.close(reading)
            _finish(process)


def _finish(process: subprocess.Popen[bytes]) -> None:
    """End it with all that it started: compilers, and what hangs in a library."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _line(descriptor: int, seconds: float) -> bytes | None:
    """The next line of a pipe, without its line feed if the writer ended before; None if it does not come in time."""
    end = time.monotonic() + seconds
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        piece = os.read(descriptor, 1)  # a line may be followed by the next
        if not piece:
            break
        text += piece
    return text


def _end(process: subprocess.Popen[bytes], errors: BinaryIO, *, hung: bool) -> str:
    """How a process ended that did not answer."""
    if hung:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return "it did not end in time"
    code = process.wait()
    errors.seek(0)
    said = errors.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
    how = f"it crashed ({_signal(-code)})" if code < 0 else f"its process ended with code {code}"
    return f"{how}: {' '.join(said[-1].split())[:200]}" if said else how


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
