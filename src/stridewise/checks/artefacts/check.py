"""Whether an exported program takes layouts that it was not made for: runs it over them, and says what goes wrong."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stridewise.checks.artefacts import guard
from stridewise.checks.artefacts.facts import Asked, Facts, Node
from stridewise.checks.artefacts.judge import Judge, Judged
from stridewise.checks.artefacts.opened import CHECKS_ASKED, Subject, import_loaders, open_subject
from stridewise.checks.artefacts.probe import MADE_FOR, ArtefactProbe
from stridewise.checks.artefacts.snippet import snippet
from stridewise.checks.artefacts.subject import subject_of
from stridewise.checks.operators import judge as operators
from stridewise.checks.operators.case import Beside, Case, Described, Outcome
from stridewise.checks.operators.children import forked
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.plan import plan
from stridewise.checks.operators.sandbox import Sandbox
from stridewise.checks.words import environment
from stridewise.errors import UsageError
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Snippet

_SHARE_OF_GRID = 0.7
"""Of the time limit; the rest is for the guard."""
_CONTAINED = "in a child process, forked, on one thread"
Progress = Callable[[int, int], object]


def check_export(
    program: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    model: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    timeout: float = 10.0,
    time_limit: float = 60.0,
    progress: Progress | None = None,
    model_target: str | None = None,
) -> Artefact:
    """See `stridewise.api.check_export`; `model_target` names the model, for the programs that are written."""
    from stridewise.checks.operators.check import require_positive, require_share

    require_positive(timeout=timeout, time_limit=time_limit)
    require_share(tolerance)
    if model is not None and not callable(model):
        raise UsageError(f"The model is {type(model).__name__}.", expected="Expected: a module or a function.")
    if not hasattr(os, "fork"):
        raise UsageError("An exported program runs in a child process, which this system can't fork.")
    subject = dataclasses.replace(subject_of(program, args, kwargs), model=model_target)
    import_loaders(subject.kind)
    options = Options(
        gradients=False,
        fake=False,
        sizes=False,
        tolerance=tolerance,
        timeout_s=timeout,
        time_limit_s=time_limit,
    )
    return _Check(subject, model, options, progress).run()


class _Check:
    """One artefact, and the child processes that it runs in."""

    def __init__(
        self, subject: Subject, model: Callable[..., Any] | None, options: Options, progress: Progress | None
    ) -> None:
        self._subject, self._model, self._options, self._progress = subject, model, options, progress
        self._strides: tuple[tuple[int, ...], ...] | None = None
        self._folder = ""
        """In which children unpack: they are killed, and so leave what they wrote."""
        self._asking: Sandbox | None = None
        """A child in which a package checks its inputs, if it can be made to."""

    def run(self) -> Artefact:
        """Try it, and the guard."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="stridewise-") as self._folder:
            try:
                if self._subject.kind == "AOTInductor package":
                    self._strides = self._ask_strides()
                with self._sandbox() as runner:
                    return self._tried(runner, begin)
            finally:
                if self._asking is not None:
                    self._asking.close()

    def _tried(self, runner: Sandbox, begin: float) -> Artefact:
        described = runner.describe()
        facts = msgspec.json.decode(runner.ask("facts"), type=Facts)
        cases = plan(described, self._options)
        outcomes: list[Outcome] = []
        judge = self._judge(facts, described, outcomes, runner)
        judged: tuple[Judged, ...] = ()
        snippets: tuple[Snippet, ...] = ()
        text, holds, interrupted = None, None, False
        try:
            self._over(runner, cases, outcomes, begin + _SHARE_OF_GRID * self._options.time_limit_s)
            outcomes[:] = runner.revised(outcomes)
            judge = self._judge(facts, described, outcomes, runner)
            judged = judge.findings(self._if_asked)
            snippets = tuple(self._snippet(entry, facts, runner) for entry in judged)
            text = _guard_text(judge, facts, described, outcomes, self._subject.name)
            if text is not None:
                holds = self._holds(
                    text, [outcome.case for outcome in outcomes if outcome.status != "not applicable"], begin
                )
        except KeyboardInterrupt:
            interrupted = True
            if not judged:
                judge = self._judge(facts, described, outcomes, None)
                judged = judge.findings(lambda case: None)
        left = len(cases) - len(outcomes)
        return Artefact(
            name=self._subject.name,
            kind=facts.kind,
            versions=facts.versions,
            inputs=judge.rows(),
            cases=operators.tried(outcomes, described),
            findings=tuple(entry.finding for entry in judged),
            snippets=snippets,
            guard=text,
            guard_holds=holds,
            tolerance=described.tolerance_words,
            contained=runner.contained,
            notes=(
                *facts.notes,
                *described.notes,
                *runner.notes,
                *_notes(judge, described, left, len(cases), interrupted, self._model is not None),
            ),
            environment=environment(),
            interrupted=interrupted,
            left=left,
            model_given=self._model is not None,
        )

    def _over(self, runner: Sandbox, cases: tuple[Case, ...], outcomes: list[Outcome], end: float) -> None:
        for done, case in enumerate(cases):
            if time.monotonic() > end:
                break
            if self._progress is not None:
                self._progress(done, len(cases))
            outcomes.append(self._alone(runner, runner.run(case)))
        if self._progress is not None:
            self._progress(len(outcomes), len(cases))

    def _alone(self, runner: Sandbox, outcome: Outcome) -> Outcome:
        """What the program does without the model, if the process ended or hung with it: whose fault was that?"""
        if self._model is None or outcome.status not in ("crashed", "hung"):
            return outcome
        try:
            answer = runner.ask(f"alone {msgspec.json.encode(outcome.case).decode()}")
        except UsageError:  # it was the program
            return outcome
        again = msgspec.json.decode(answer, type=Outcome)
        how = "ends the process" if outcome.status == "crashed" else "does not come back"
        return replace(again, beside=Beside(f"the model {how}: {outcome.message}"))

    def _judge(self, facts: Facts, described: Described, outcomes: list[Outcome], runner: Sandbox | None) -> Judge:
        """`runner` answers what the finding of a case needs; None where nothing more may be run."""

        def ask(question: str, case: Case) -> bytes:
            return runner.ask(f"{question} {msgspec.json.encode(case).decode()}") if runner is not None else b"null"

        return Judge(
            self._subject.name,
            facts,
            described,
            outcomes,
            lambda case: msgspec.json.decode(ask("asked", case), type=tuple[Asked, ...] | None) or (),
            lambda case: msgspec.json.decode(ask("node", case), type=Node | None),
        )

    def _snippet(self, entry: Judged, facts: Facts, runner: Sandbox) -> Snippet:
        return snippet(entry, facts, self._subject, runner.execute)

    # --------------------------------------------------------------------------------------------------- children

    def _sandbox(self, *, asked: bool = False, guarded: str | None = None) -> Sandbox:
        """A child that loads the artefact itself: `asked` to check its inputs, or behind a guard."""
        subject, strides, options, folder = self._subject, self._strides, self._options, self._folder
        model = self._model if guarded is None and not asked else None

        def make() -> ArtefactProbe:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            if asked:
                os.environ[CHECKS_ASKED] = "1"
            opened = open_subject(subject, strides)
            if guarded is not None:
                opened.call = guard.guard_artefact(opened.call, guarded)
            return ArtefactProbe(opened, options, model)

        # Of the programs that are written: they run in a child that is neither asked nor guarded.
        is_bare = guarded is None and not asked
        names = {"model": model} | ({"program": subject.callable} if is_bare and subject.path is None else {})
        return Sandbox(forked(make, names), options, _CONTAINED, what=subject.name, usual=MADE_FOR)

    def _ask_strides(self) -> tuple[tuple[int, ...], ...] | None:
        """What a package says that it expects, once it is made to check; None if it does not say."""
        self._asking = self._sandbox(asked=True)
        found = msgspec.json.decode(self._asking.ask("strides"), type=tuple[tuple[int, ...], ...] | None)
        if found is None:
            self._asking.close()
            self._asking = None
        else:
            self._strides = found
            self._asking.close()
            self._asking = self._sandbox(asked=True)
        return found

    def _if_asked(self, case: Case) -> str | None:
        """What a package raises for a case once it is made to check."""
        if self._asking is None:
            return None
        return self._asking.run(case).message

    def _holds(self, text: str, cases: list[Case], begin: float) -> bool | None:
        """Whether every layout is right behind the guard; None if time was over before one was tried."""
        outcomes: list[Outcome] = []
        with self._sandbox(guarded=text) as runner:
            for case in cases:
                if time.monotonic() > begin + self._options.time_limit_s:
                    break
                outcomes.append(runner.run(case))
        bad = any(outcome.faults or outcome.status in ("raised", "crashed", "hung") for outcome in outcomes)
        return not bad if outcomes and (bad or len(outcomes) == len(cases)) else None


def _guard_text(judge: Judge, facts: Facts, described: Described, outcomes: list[Outcome], name: str) -> str | None:
    """The guard; None where every layout is right."""
    tried = [outcome for outcome in outcomes if outcome.status != "not applicable"]
    if all(judge.treatment(outcome) == "right" for outcome in tried):
        return None
    written = {operand.name for operand in described.operands if operand.role == "in place"}
    return guard.text_of((*facts.inputs, *facts.untried), written, name, facts.parameters)


def _notes(judge: Judge, described: Described, left: int, cases: int, interrupted: bool, has_model: bool) -> list[str]:
    notes = []
    if left:
        why = "it was interrupted" if interrupted else "its time was over"
        notes.append(f"{left} of {cases} runs were not made: {why}.")
    if described.random:
        notes.append("Its values change with the seed: they were not compared.")
    if has_model and any(row.refused for row in judge.rows()):
        notes.append("What it gives for layouts that it refuses can't be compared: check it again when it takes them.")
    if judge.model_differs:
        notes.append(f"{judge.how_the_model_differs} The program was held against itself alone.")
    elif has_model and not judge.has_model and not interrupted:
        notes.append("The model's results are others in number: the program was held against itself alone.")
    if judge.unexplained:
        notes.append(
            f"In {len(judge.unexplained)} layouts the model gives other values than in those that the program was made "
            "for, and was not heard to ask for a layout: `stridewise check op` tells whether that is the model's own."
        )
    return notes
