"""Child processes from the outside: how they start, how they are asked, and how they end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal

from stridewise.checks.operators import protocol

if TYPE_CHECKING:
    from stridewise.checks.operators.probe import Probe

Start = Callable[[IO[bytes]], "Child"]
"""Starts a child that writes what it prints to a file."""
_ENDING_S = 2.0
"""How long a child that closed its pipe may take to end."""
_SLICE_MS = 100
_forking = threading.Lock()
_ours: set[int] = set()
"""Ends of pipes that this process holds: no child may keep those of another one open."""


class Child:
    """A child process, and the pipes to and from it."""

    def __init__(self, process: int, requests: int, answers: int) -> None:
        self.process = process
        self._requests = requests
        self._answers = answers
        self._status: int | None = None
        self._has_ended = False

    def ask(self, request: bytes) -> None:
        """Send a request. Raises BrokenPipeError if the child has ended."""
        protocol.send(self._requests, request)

    def answer(self, timeout_s: float) -> bytes | Literal["late", "ended", "garbled"]:
        """The next answer, or why there is none."""
        deadline = time.monotonic() + timeout_s
        head = self._exactly(protocol.HEAD_BYTES, deadline)
        if isinstance(head, str):
            return head
        try:
            return self._exactly(protocol.length_of(head), deadline)
        except protocol.Garbled:
            return "garbled"

    def end(self, *, kill: bool) -> int | None:
        """End it, and what it started; gives the status that `waitpid` tells of one that ended by itself."""
        with _forking:
            for end in (self._requests, self._answers):
                _ours.discard(end)
                os.close(end)
        deadline = time.monotonic() + (0 if kill else _ENDING_S)
        while not self._look() and time.monotonic() < deadline:
            time.sleep(0.002)
        alone = not self._has_ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)
        if alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
        return self._status

    def _look(self) -> bool:
        """Whether it has ended."""
        if not self._has_ended:
            try:
                done, status = os.waitpid(self.process, os.WNOHANG)
            except ChildProcessError:  # the program waits for all children itself
                self._has_ended = True
            else:
                self._has_ended, self._status = bool(done), status if done else None
        return self._has_ended

    def _exactly(self, count: int, deadline: float) -> bytes | Literal["late", "ended"]:
        parts: list[bytes] = []
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while count:
            left_ms = max(0.0, 1000 * (deadline - time.monotonic()))
            if not poll.poll(min(left_ms, _SLICE_MS)):
                # What the operator started may hold the pipe open.
                if self._look() and not poll.poll(0):
                    return "ended"
                if not left_ms:
                    return "late"
                continue
            part = os.read(self._answers, min(count, 1 << 20))
            if not part:
                return "ended"
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def forked(make: Callable[[], Probe], names: Mapping[str, Any]) -> Start:
    """Starts children as forks of this process, with what it has in memory.

    `names` are what programs to execute may use without an import.
    """
    from stridewise.checks.operators import child

    def start(output: IO[bytes]) -> Child:
        parent = os.getpid()
        with _forking:
            requests_in, requests_out = os.pipe()
            answers_in, answers_out = os.pipe()
            with _no_warning_of_threads():
                process = os.fork()
            if process == 0:
                try:
                    for end in (requests_out, answers_in, *_ours):
                        os.close(end)
                    child.serve(make, names, requests_in, answers_out, output.fileno(), parent)
                finally:
                    os._exit(protocol.DONE)
            return _started(process, (requests_in, answers_out), (requests_out, answers_in))

    return start


def spawned(payload: IO[bytes]) -> Start:
    """Starts children as new interpreters, which import the operator: where CUDA runs, a fork can't use it."""
    import subprocess

    from stridewise.checks.operators import child

    def start(output: IO[bytes]) -> Child:
        with _forking:
            requests_in, requests_out = os.pipe()
            answers_in, answers_out = os.pipe()
            given = requests_in, answers_out, payload.fileno()
            process = subprocess.Popen(
                [sys.executable, "-c", child.PROGRAM, *map(str, given), str(os.getpid())],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
            )
            process.returncode = 0  # it is ours to wait for, not Popen's
            return _started(process.pid, (requests_in, answers_out), (requests_out, answers_in))

    return start


def how_it_ended(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "its process stopped answering"
    if not os.WIFSIGNALED(status):
        code = os.WEXITSTATUS(status)
        return "it closed files that are not its own" if code == protocol.LOST else f"it ended the process ({code})"
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    cause = ", as happens where memory runs out" if number == signal.SIGKILL else ""
    return f"its process was ended by {name} ({signal.strsignal(number)}){cause}"


def _started(process: int, theirs: tuple[int, int], ours: tuple[int, int]) -> Child:
    for end in theirs:
        os.close(end)
    _ours.update(ours)
    return Child(process, *ours)


@contextmanager
def _no_warning_of_threads() -> Iterator[None]:
    """Python warns of forks under threads: the child runs on one, and touches no lock of theirs."""
    if sys.version_info < (3, 12):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _after_fork() -> None:
    global _forking
    _forking = threading.Lock()  # another thread may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
