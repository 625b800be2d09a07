"""The child process in which an operator runs: it answers requests until its pipe is closed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stridewise.checks.operators.case import Case
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.checks.operators.probe import Probe

HEAD = struct.Struct("<Q")
"""In front of each message: its length."""
DESCRIBE, RUN, ANSWER, FAILED, DEFECT = b"d", b"r", b"a", b"f", b"!"
"""The first byte of a message: of requests what is asked, of answers how it went."""
DONE = 0
PROGRAM = "from stridewise.checks.operators.child import main; main()"
_M_PERTURB, _PATTERN = -6, 0xA5
_PR_SET_PDEATHSIG = 1


def send(end: int, message: bytes) -> None:
    """Write a message to a pipe."""
    data = memoryview(HEAD.pack(len(message)) + message)
    while data:
        data = data[os.write(end, data) :]


def serve(make: Callable[[], Probe], requests: int, answers: int, output: int, parent: int) -> None:
    """Answer requests until there are no more; in a process that was forked for it."""
    _prepare(output, parent)
    import torch

    # First of all: after a fork, OpenMP would wait for threads that are not there.
    torch.set_num_threads(1)
    answer_all(make, requests, answers)


def answer_all(make: Callable[[], Probe], requests: int, answers: int) -> None:
    """Read requests and write answers."""
    probe: Probe | None = None
    while (request := _receive(requests)) is not None:
        try:
            probe = probe or make()
            if request == DESCRIBE:
                send(answers, ANSWER + msgspec.json.encode(probe.describe()))
            else:
                send(answers, ANSWER + msgspec.json.encode(probe.run(msgspec.json.decode(request[1:], type=Case))))
        except UsageError as error:
            send(answers, FAILED + msgspec.json.encode((error.given, error.expected, error.advice)))
        except Exception:
            import traceback

            send(answers, DEFECT + traceback.format_exc().encode(errors="replace"))


def main() -> None:
    """What a spawned child runs: its first message is what to import."""
    requests, answers, parent = map(int, sys.argv[1:4])
    _prepare(None, parent)
    payload = _receive(requests)
    assert payload is not None
    import torch

    from stridewise.checks.operators.load import unpacked

    torch.set_num_threads(1)
    answer_all(lambda: unpacked(payload), requests, answers)


def _prepare(output: int | None, parent: int) -> None:
    """A process whose end is quiet, that ends with its parent, and in which freed memory shows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if "faulthandler" in sys.modules:
        sys.modules["faulthandler"].disable()
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = _c_library()
    if library is not None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(DONE)
        # What a kernel reads after it was freed, or before it was written, is no longer what it should be.
        library.mallopt(_M_PERTURB, _PATTERN)
    if output is not None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115


def _c_library() -> ctypes.CDLL | None:
    """glibc; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "prctl") else None


def _receive(end: int) -> bytes | None:
    head = _exactly(end, HEAD.size)
    return None if head is None else _exactly(end, HEAD.unpack(head)[0])


def _exactly(end: int, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = os.read(end, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
