"""Runs a probe in a child process, which may crash or hang, and says which."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from stridewise.checks.operators import child
from stridewise.checks.operators.case import Case, Described, Outcome
from stridewise.checks.operators.options import Options
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.checks.operators.probe import Probe

_FIRST_GRACE = 6
"""How much longer the first runs may take: some operators are built when they are first called."""
_forking = threading.Lock()
_LAST_WORDS = 200


class Runner(Protocol):
    """What runs cases."""

    contained: str
    """How, in words."""

    def describe(self) -> Described:
        """What contiguous runs tell; raises UsageError if they fail."""

    def run(self, case: Case) -> Outcome:
        """Run one case."""

    def close(self) -> None:
        """End what was started."""


class InProcess:
    """Runs a probe in this process."""

    contained = "in this process"

    def __init__(self, probe: Probe) -> None:
        self.describe, self.run = probe.describe, probe.run

    def close(self) -> None:
        """Nothing was started."""


class Sandbox:
    """Runs a probe in a child process, in a new one after each that ended or damaged its memory.

    `start` gives the child: its process id, and the two ends that requests go to and answers come from.
    """

    def __init__(self, start: Callable[[IO[bytes]], Child], options: Options, contained: str) -> None:
        self.contained = contained
        self._start = start
        self._options = options
        self._child: Child | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def describe(self) -> Described:
        """What contiguous runs tell. Raises UsageError if they fail, crash or hang."""
        answer = self._ask(child.DESCRIBE, _FIRST_GRACE * self._options.timeout_s)
        if isinstance(answer, _Ended):
            raise UsageError(
                f"The operator {answer.verb} for contiguous operands: {answer.message}.",
                expected="Expected: a sample that it takes, to compare other layouts with.",
            )
        if answer[:1] == child.FAILED:
            given, expected, advice = msgspec.json.decode(answer[1:], type=tuple[str, str | None, str | None])
            raise UsageError(given, expected=expected, advice=advice)
        return msgspec.json.decode(answer[1:], type=Described)

    def run(self, case: Case) -> Outcome:
        """Run one case; a child that ends says that the operator crashed, and one that does not answer that it hung."""
        fresh = self._child is None
        grace = _FIRST_GRACE if fresh else 1
        answer = self._ask(child.RUN + msgspec.json.encode(case), grace * self._options.timeout_s)
        if isinstance(answer, _Ended) and not fresh and answer.status == "crashed":
            # A heap that an earlier run damaged may only show now: what counts is what this case does alone.
            answer = self._ask(child.RUN + msgspec.json.encode(case), _FIRST_GRACE * self._options.timeout_s)
        if isinstance(answer, _Ended):
            return Outcome(case, answer.status, message=answer.message)
        if answer[:1] == child.DEFECT:
            raise RuntimeError(f"a defect of stridewise, in the child process:\n{answer[1:].decode()}")
        outcome = msgspec.json.decode(answer[1:], type=Outcome)
        if any(fault.verdict == "writes outside" for fault in outcome.faults):
            self._end()
        return outcome

    def close(self) -> None:
        """End the child."""
        self._end()
        self._output.close()

    # -------------------------------------------------------------------------------------------------- one request

    def _ask(self, request: bytes, timeout_s: float) -> bytes | _Ended:
        """The child's answer, or how it ended without one."""
        if self._child is None:
            self._child = self._start(self._output)
        running = self._child
        try:
            child.send(running.requests, request)
            answer = running.answers.read(time.monotonic() + timeout_s)
        except BrokenPipeError:
            answer = None
        except BaseException:
            self._end()
            raise
        if answer is not None and answer is not _TIMED_OUT:
            assert isinstance(answer, bytes)
            return answer
        code = self._end()
        if answer is _TIMED_OUT:
            return _Ended("hung", "does not come back", f"no answer within {timeout_s:g} s")
        return _Ended("crashed", "crashes", _how_it_ended(code, self._last_words()))

    def _end(self) -> int | None:
        """End the child if it runs; gives the status that `waitpid` tells."""
        running, self._child = self._child, None
        return running.end() if running is not None else None

    def _last_words(self) -> str:
        """The last line that the child wrote, such as `double free or corruption (out)`."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - 4096))
        lines = self._output.read().decode(errors="replace").split("\n")
        self._output.seek(0)
        self._output.truncate()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LAST_WORDS]


class Child:
    """A child process, and the pipes to and from it."""

    def __init__(self, process: int, requests: int, answers: int, reap: Callable[[], int | None] | None = None) -> None:
        self.process = process
        self.requests = requests
        self.answers = _Answers(answers)
        self._reap = reap

    def end(self) -> int | None:
        """Kill it, if it still runs; gives the status that `waitpid` tells, if that is known."""
        for end in (self.requests, self.answers.end):
            with contextlib.suppress(OSError):
                os.close(end)
        if self._reap is not None:
            return self._reap()
        # It has closed its end or does not answer: a moment for one that is just ending by itself, to learn how.
        for _ in range(50):
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                return status
            time.sleep(0.002)
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        return None


class _Ended(msgspec.Struct, frozen=True):
    status: Any
    verb: str
    message: str


class _Answers:
    """Messages from a pipe, each with its length in front."""

    def __init__(self, end: int) -> None:
        self.end = end

    def read(self, deadline: float) -> bytes | object | None:
        """The next message; None if the pipe was closed."""
        head = self._exactly(child.HEAD.size, deadline)
        if not isinstance(head, bytes):
            return head
        (length,) = child.HEAD.unpack(head)
        return self._exactly(length, deadline)

    def _exactly(self, count: int, deadline: float) -> bytes | object | None:
        parts: list[bytes] = []
        while count:
            ready, _, _ = select.select([self.end], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return _TIMED_OUT
            part = os.read(self.end, min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


_TIMED_OUT = object()


# ------------------------------------------------------------------------------------------------------------- start


def forked(make: Callable[[], Probe]) -> Callable[[IO[bytes]], Child]:
    """Starts children as forks of this process, with what it has in memory."""

    def start(output: IO[bytes]) -> Child:
        parent = os.getpid()
        with _forking, warnings.catch_warnings():
            # Python warns of forks under threads: the child runs on one, and touches no lock of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            requests_in, requests_out = os.pipe()
            answers_in, answers_out = os.pipe()
            process = os.fork()
            if process == 0:
                try:
                    os.close(requests_out)
                    os.close(answers_in)
                    child.serve(make, requests_in, answers_out, output.fileno(), parent)
                finally:
                    os._exit(child.DONE)
            os.close(requests_in)
            os.close(answers_out)
        return Child(process, requests_out, answers_in)

    return start


def spawned(payload: bytes) -> Callable[[IO[bytes]], Child]:
    """Starts children as new interpreters, which import the operator: where CUDA runs, a fork can't use it."""
    import subprocess
    import sys

    def start(output: IO[bytes]) -> Child:
        with _forking:
            requests_in, requests_out = os.pipe()
            answers_in, answers_out = os.pipe()
            ends = requests_in, answers_out
            process = subprocess.Popen(
                [sys.executable, "-c", child.PROGRAM, *map(str, ends), str(os.getpid())],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
            )
            os.close(requests_in)
            os.close(answers_out)

        def reap() -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(0.1)
                return -code if code < 0 else code << 8
            process.kill()
            process.wait()
            return None

        started = Child(process.pid, requests_out, answers_in, reap)
        child.send(requests_out, payload)
        return started

    return start


def _how_it_ended(status: int | None, last_words: str) -> str:
    """How a process ended, in words."""
    if status is None:
        how = "its process stopped answering"
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how = f"its process was ended by {signal.Signals(number).name} ({signal.strsignal(number)})"
    else:
        how = f"it ended the process with code {os.WEXITSTATUS(status)}"
    return f"{how}; its last words: {last_words}" if last_words else how
