"""The child process in which an operator runs: it answers requests until its pipe is closed."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stridewise.checks.operators import protocol
from stridewise.checks.operators.case import Case, Described
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.checks.operators.probe import Probe

PROGRAM = "from stridewise.checks.operators.child import main; main()"
_M_PERTURB, _PATTERN = -6, 0x40
"""Freed memory reads as 3.0 in float32 and fresh memory as -1.5: neither 0, which much code would take for right, nor
what was there before."""
_PR_SET_PDEATHSIG = 1
_kept: list[Any] = []


def serve(
    make: Callable[[], Probe],
    names: Mapping[str, Any],
    requests: int,
    answers: int,
    output: int,
    parent: int,
) -> None:
    """Answer requests until there are no more; in a process that was forked for it.

    `names` are what programs to execute may use without an import.
    """
    os.setsid()  # a Ctrl-C is the parent's, and what the operator starts can be ended with it
    _redirect(output)
    _prepare(parent)
    import torch

    # First of all: after a fork, OpenMP would wait for threads that are not there.
    torch.set_num_threads(1)
    answer_all(make, names, requests, answers)


def main() -> None:
    """What a spawned child runs: its arguments are the ends of its pipes, and a file that says what to import."""
    requests, answers, payload, parent = map(int, sys.argv[1:5])
    for end in (requests, answers):
        os.set_inheritable(end, False)
    _prepare(parent)
    with open(payload, "rb") as file:
        file.seek(0)
        given = file.read()
    import torch

    from stridewise.checks.operators.load import unpacked

    torch.set_num_threads(1)
    answer_all(lambda: unpacked(given), {}, requests, answers)


def answer_all(make: Callable[[], Probe], names: Mapping[str, Any], requests: int, answers: int) -> None:
    """Read requests and write answers."""
    own = os.getpid()
    probe: Probe | None = None
    try:
        protocol.send(answers, protocol.READY)
        while (request := protocol.receive(requests)) is not None:
            kind, rest = request[:1], request[1:]
            answer: bytes | None = None
            try:
                if kind == protocol.EXECUTE:
                    answer = _executed(msgspec.json.decode(rest, type=str), names)
                else:
                    probe = probe or make()
                    answer = _answer(probe, kind, rest)
            except UsageError as error:
                answer = protocol.FAILED + msgspec.json.encode((error.given, error.expected, error.advice))
            except Exception:
                answer = protocol.DEFECT + traceback.format_exc().encode(errors="replace")
            except BaseException as error:
                answer = protocol.LEFT + repr(error).encode(errors="replace")
            if os.getpid() != own:
                os._exit(protocol.DONE)  # a copy, which the operator made with a fork and let return
            if answer is not None:
                protocol.send(answers, answer)
    except (OSError, protocol.Garbled):
        os._exit(protocol.LOST)


def _answer(probe: Probe, kind: bytes, rest: bytes) -> bytes | None:
    if kind == protocol.KNOWN:
        probe.described = msgspec.json.decode(rest, type=Described)
        return None
    if kind == protocol.DESCRIBE:
        return protocol.ANSWER + msgspec.json.encode(probe.describe())
    if kind == protocol.QUESTION:
        return protocol.ANSWER + probe.answer(rest.decode())
    return protocol.ANSWER + msgspec.json.encode(probe.run(msgspec.json.decode(rest, type=Case)))


def _executed(code: str, names: Mapping[str, Any]) -> bytes:
    """What a program raises: the name of its type, and its text; None if it comes to its end."""
    raised: tuple[str, str] | None = None
    try:
        exec(compile(code, "<snippet>", "exec"), {"__name__": "__main__", **names})
    except Exception as error:
        raised = type(error).__name__, str(error)
    return protocol.ANSWER + msgspec.json.encode(raised)


# ------------------------------------------------------------------------------------------------------- preparation


def _prepare(parent: int) -> None:
    """A process whose end is quiet, that ends with its parent, and in which freed memory shows."""
    gc.freeze()  # what is garbage in the parent is not finalized here too
    sys.settrace(None)
    sys.setprofile(None)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if "faulthandler" in sys.modules:
        sys.modules["faulthandler"].disable()
    _leave_no_core()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, this process goes first
    library = _c_library()
    if library is not None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(protocol.DONE)
        # What a kernel reads after it was freed, or before it was written, is no longer what it should be.
        library.mallopt(_M_PERTURB, _PATTERN)


def _redirect(output: int) -> None:
    """Nothing to read, and what is written goes to a file."""
    _kept.extend((sys.stdin, sys.stdout, sys.stderr))  # their ends would write what the parent has in its buffers
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        open(stream, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        for stream in (1, 2)
    )


def _leave_no_core() -> None:
    with contextlib.suppress(ImportError):
        import resource

        for limit in (1, 0):  # 1 byte also tells programs that collect cores that none is wanted; core(5)
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
                return


def _c_library() -> ctypes.CDLL | None:
    """glibc; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "prctl") else None
