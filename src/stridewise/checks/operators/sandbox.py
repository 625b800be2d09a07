"""Runs an operator in a child process, which may crash or hang, and says which."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, Protocol, Self

import msgspec
from msgspec import Struct

from stridewise.checks.operators import protocol
from stridewise.checks.operators.case import Case, Described, Outcome
from stridewise.checks.operators.children import Child, Start, forked, how_it_ended, spawned
from stridewise.checks.operators.options import Options
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.checks.operators.operands import Bound
    from stridewise.checks.operators.probe import Probe

_FIRST_GRACE = 6
"""How much longer the first runs may take: some operators are built when they are first called."""
_START_S = 120.0
"""How long a child may take before it can be asked: one that is started anew imports torch."""
_STARTS = 3
_LAST_WORDS = 200
_MOST_PRINTED = 1 << 20


class Executed(Struct, frozen=True):
    """How a program ended."""

    how: Literal["passed", "raised", "crashed", "hung"]
    error: str = ""
    """Name of the exception's type."""
    message: str = ""


class Runner(Protocol):
    """What runs cases."""

    contained: str
    """How, in words."""
    notes: list[str]

    def describe(self) -> Described:
        """What contiguous runs tell; raises UsageError if they fail."""

    def run(self, case: Case) -> Outcome:
        """Run one case."""

    def revised(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The same outcomes, as far as later runs showed nothing else."""

    def execute(self, code: str) -> Executed | None:
        """How a program ends; None where it can't be tried."""

    def close(self) -> None:
        """End what was started."""


def runner(
    bound: Bound, options: Options, name: str, target: str | None, *, spawn: bool | None = None
) -> InProcess | Sandbox:
    """What runs an operator as the options ask. Raises UsageError where it has to be imported and can't be.

    `target` is how it is imported. `spawn` is whether it runs in a new interpreter; None for where a fork can't be.
    """
    from stridewise.checks.operators import load
    from stridewise.checks.operators.probe import Probe

    def make() -> Probe:
        return Probe(bound.fn, bound.args, bound.kwargs, options, name)

    if not options.contain:
        return InProcess(make())
    if not (must_spawn() if spawn is None else spawn):
        op = getattr(bound.fn, "apply", bound.fn) if isinstance(bound.fn, type) else bound.fn
        return Sandbox(forked(make, {"op": op}), options, "in a child process, forked, on one thread")
    if target is None:
        raise UsageError(
            f"`{name}` can't run in a child process: an accelerator is in use, which rules out a fork, and it can't be "
            "imported.",
            advice="Put it into a module of its own, call check_op before the device is used, or give contain=False.",
        )
    payload = tempfile.TemporaryFile()  # noqa: SIM115
    payload.write(load.packed(target, bound.args, bound.kwargs, options, name))
    payload.flush()
    return Sandbox(spawned(payload), options, "in a child process, started anew, on one thread", payload)


def must_spawn() -> bool:
    """Whether a fork of this process could not run operators: devices do not survive one."""
    import torch

    kinds = [getattr(torch, name, None) for name in ("cuda", "xpu", "mtia")]
    return not hasattr(os, "fork") or any(kind is not None and kind.is_initialized() for kind in kinds)


class InProcess:
    """Runs a probe in this process."""

    contained = "in this process"

    def __init__(self, probe: Probe) -> None:
        self.describe, self.run = probe.describe, probe.run
        self.notes: list[str] = []

    def revised(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The same."""
        return list(outcomes)

    def execute(self, code: str) -> Executed | None:
        """Not here: a program that is to fail may end the process."""
        return None

    def close(self) -> None:
        """Nothing was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sandbox:
    """Runs a probe in a child process, in a new one after each that ended or damaged its memory.

    `payload` is a file that its start reads, if any. `what` it runs, and the `usual` operands, are words for errors.
    """

    def __init__(
        self,
        start: Start,
        options: Options,
        contained: str,
        payload: IO[bytes] | None = None,
        *,
        what: str = "The operator",
        usual: str = "contiguous operands",
    ) -> None:
        self.contained = contained
        self._what, self._usual = what, usual
        self.notes: list[str] = []
        self._start = start
        self._payload = payload
        self._options = options
        self._child: Child | None = None
        self._described: bytes | None = None
        self._first_s = 0.0
        self._ran: list[Case] = []
        """In the child that runs now."""
        self._revised: list[Outcome] = []
        self._output: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def describe(self) -> Described:
        """What contiguous runs tell. Raises UsageError if they fail, crash or hang."""
        begin = time.monotonic()
        answer = self._ask(protocol.DESCRIBE, _FIRST_GRACE * self._options.timeout_s)
        self._first_s = time.monotonic() - begin
        if isinstance(answer, _Ended):
            raise UsageError(
                f"{self._what} {answer.verb} for {self._usual}: {answer.message}.",
                expected="Expected: a sample that it takes, to compare other layouts with.",
            )
        self._described = answer
        return msgspec.json.decode(answer, type=Described)

    def run(self, case: Case) -> Outcome:
        """Run one case; a child that ends says that the operator crashed, and one that does not answer that it hung."""
        earlier = self._ran if self._child is not None else []
        outcome = self._run(case)
        if outcome.status == "crashed" and earlier:
            # A heap that an earlier run damaged may only show now: what counts is what this case does alone.
            crash, outcome = outcome, self._run(case)
            if outcome.status != "crashed":
                self._blame(earlier[-1], case, crash)
        return outcome

    def ask(self, question: str) -> bytes:
        """What the probe answers to a question of its own kind. Raises UsageError if it ends instead."""
        answer = self._ask(protocol.QUESTION + question.encode(), _FIRST_GRACE * self._options.timeout_s)
        if isinstance(answer, _Ended):
            raise UsageError(f"{self._what} {answer.verb}: {answer.message}.")
        return answer

    def revised(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The same outcomes, with those in their place that turned out to crash the process only later."""
        late = {repr(outcome.case): outcome for outcome in self._revised}
        return [late.get(repr(outcome.case), outcome) for outcome in outcomes]

    def execute(self, code: str) -> Executed | None:
        """How a program ends. A forked child has the operator as `op`."""
        answer = self._ask(protocol.EXECUTE + msgspec.json.encode(code), 2 * self._options.timeout_s + self._first_s)
        if isinstance(answer, _Ended):
            return Executed(answer.status, message=answer.message)
        raised = msgspec.json.decode(answer, type=tuple[str, str] | None)
        self._end(kill=True)
        return Executed("passed") if raised is None else Executed("raised", *raised)

    def close(self) -> None:
        """End the child."""
        self._end(kill=True)
        self._output.close()
        if self._payload is not None:
            self._payload.close()

    # ------------------------------------------------------------------------------------------------------- one case

    def _run(self, case: Case) -> Outcome:
        grace_s = 2 * self._first_s if self._child is None else 0.0
        answer = self._ask(protocol.RUN + msgspec.json.encode(case), self._options.timeout_s + grace_s)
        if isinstance(answer, _Ended):
            return Outcome(case, answer.status, message=answer.message)
        self._ran.append(case)
        outcome = msgspec.json.decode(answer, type=Outcome)
        if any(fault.verdict == "writes outside" for fault in outcome.faults):
            self._end(kill=True)
        return outcome

    def _blame(self, suspect: Case, case: Case, crash: Outcome) -> None:
        """Find out whether it was the run before that made a case crash which alone does not."""
        self._end(kill=True)
        first = self._run(suspect)
        second = self._run(case) if self._child is not None else first
        if first.status == "crashed" or second.status == "crashed":
            seen = first if first.status == "crashed" else second
            message = f"it damages the memory of its process, which shows in a later run: {seen.message}"
            self._revised.append(Outcome(suspect, "crashed", message=message, layouts=first.layouts))
        else:
            self.notes.append(
                f"The process crashed once after many runs, and not again for the last ones: {crash.message}."
            )

    # -------------------------------------------------------------------------------------------------- one request

    def _ask(self, request: bytes, timeout_s: float) -> bytes | _Ended:
        """What the child answers, or how it ended without an answer. Raises what it says of a defect or of the call."""
        try:
            running = self._running()
            running.ask(request)
            answer = running.answer(timeout_s)
        except BrokenPipeError:
            answer = "ended"
        except BaseException:
            self._end(kill=True)
            raise
        if answer == "late":
            self._end(kill=True)
            return _Ended("hung", "does not come back", f"no answer within {timeout_s:.3g} s")
        if answer == "garbled":
            self._end(kill=True)
            return _Ended("crashed", "crashes", "it writes into files that are not its own")
        if isinstance(answer, str):
            how = how_it_ended(self._end(kill=False))
            words = self._last_words()
            return _Ended("crashed", "crashes", f"{how}; its last words: {words}" if words else how)
        self._forget_what_was_printed()
        kind, rest = answer[:1], answer[1:]
        if kind == protocol.LEFT:
            self._end(kill=True)
            return _Ended("crashed", "crashes", f"it raises {rest.decode()}, which ends a program")
        if kind in (protocol.FAILED, protocol.DEFECT):
            self._end(kill=True)
        if kind == protocol.FAILED:
            given, expected, advice = msgspec.json.decode(rest, type=tuple[str, str | None, str | None])
            raise UsageError(given, expected=expected, advice=advice)
        if kind == protocol.DEFECT:
            raise RuntimeError(f"a defect of stridewise, in the child process:\n{rest.decode()}")
        return rest

    def _running(self) -> Child:
        """The child; a new one if there is none, or if it ended on its own while nothing was asked."""
        if self._child is None:
            self._ran = []
            for _ in range(_STARTS):
                self._child = self._start(self._output)
                if self._child.answer(_START_S) == protocol.READY:
                    break
                how = how_it_ended(self._end(kill=False))
            else:
                words = self._last_words()
                raise UsageError(
                    f"No child process can be started to run it in: {how}{': ' if words else ''}{words}.",
                    advice="Give contain=False to run it in this process, which it may crash.",
                )
            if self._described is not None:
                self._child.ask(protocol.KNOWN + self._described)
        assert self._child is not None
        return self._child

    def _end(self, *, kill: bool) -> int | None:
        """End the child if it runs; gives the status that `waitpid` tells of one that ended by itself."""
        running, self._child = self._child, None
        return running.end(kill=kill) if running is not None else None

    def _last_words(self) -> str:
        """The last line that the child wrote, such as `double free or corruption (out)`."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - 4096))
        lines = self._output.read().decode(errors="replace").split("\n")
        self._output.truncate(0)
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LAST_WORDS]

    def _forget_what_was_printed(self) -> None:
        if os.fstat(self._output.fileno()).st_size > _MOST_PRINTED:
            self._output.truncate(0)


class _Ended(Struct, frozen=True):
    status: Literal["crashed", "hung"]
    verb: str
    message: str
