"""From what runs of an artefact came to, to rows of inputs and findings. No torch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from stridewise.checks.artefacts.facts import Asked, Facts, Node
from stridewise.checks.operators.case import Case, Described, Outcome
from stridewise.checks.operators.group import Group, in_words, is_clear, said
from stridewise.checks.operators.judge import verdict_of
from stridewise.checks.operators.plan import kind_of
from stridewise.checks.rules import sw207, sw208
from stridewise.compiled.rules import sw506
from stridewise.findings import Finding, Site
from stridewise.layout import contiguous_strides
from stridewise.results.artefacts import ArtefactInput
from stridewise.results.checks import OpVerdict

_Answer = TypeVar("_Answer")
Treatment = Literal["right", "refused", "wrong", "failed"]
_BADNESS: tuple[Treatment, ...] = ("wrong", "failed", "refused", "right")
_VIEWS = ("aten.view.", "aten._unsafe_view.", "aten.view_copy.")
_COPYING = frozenset({"contiguous", "reshape", "flatten"})


class Judged(Struct, frozen=True):
    """A finding, and the outcomes that it is about; those of a program that shows it."""

    finding: Finding
    failed: tuple[Outcome, ...]


class Judge:
    """Judges the runs of one artefact. `asked` and `node` ask its child process about a case."""

    def __init__(
        self,
        name: str,
        facts: Facts,
        described: Described,
        outcomes: Sequence[Outcome],
        asked: Callable[[Case], Sequence[Asked]],
        node: Callable[[Case], Node | None],
    ) -> None:
        self._name, self._facts, self._described = name, facts, described
        self._outcomes = [outcome for outcome in outcomes if outcome.status != "not applicable"]
        home = next((outcome for outcome in self._outcomes if not outcome.case.arrangements), None)
        beside = home.beside if home is not None else None
        self.has_model = beside is not None and not beside.raised and not beside.faults
        """Whether there is a model that does the same in the layouts that the artefact was made for."""
        self.model_differs = beside is not None and not self.has_model
        self._beside = beside
        self._asked, self._node = _by_kind(asked), _by_kind(node)
        self.unexplained: list[Outcome] = []
        """Layouts in which the model gives other values and nothing tells why."""

    @property
    def how_the_model_differs(self) -> str:
        """What the model does in the layouts that the artefact was made for."""
        assert self._beside is not None
        if self._beside.raised:
            return f"The model raises even in the layouts that the program was made for: {self._beside.raised}."
        fault = self._beside.faults[0]
        return f"The model differs from the program even in the layouts it was made for: {fault.what}: {fault.detail}."

    def treatment(self, outcome: Outcome) -> Treatment:
        """What the artefact does with a layout."""
        if outcome.status == "raised":
            return "refused" if is_clear(outcome.message) else "failed"
        if outcome.status != "ran":
            return "failed"
        if any(fault.verdict == "writes outside" or fault.reads_past for fault in outcome.faults):
            return "wrong"
        if self.has_model and outcome.beside is not None and not outcome.beside.raised:
            return "wrong" if outcome.beside.faults else "right"
        return "wrong" if outcome.faults else "right"

    def rows(self) -> tuple[ArtefactInput, ...]:
        """How each input's own layouts are treated."""
        homes = {one.name: one.strides for one in self._facts.inputs}
        rows = []
        for operand in self._described.operands:
            own = [outcome for outcome in self._outcomes if set(outcome.case.arrangements) == {operand.name}]
            found = [self.treatment(outcome) for outcome in own]
            worst = min(zip(found, own, strict=True), key=lambda pair: _BADNESS.index(pair[0]), default=None)
            rows.append(
                ArtefactInput(
                    operand.name,
                    operand.sizes,
                    operand.dtype,
                    homes.get(operand.name, contiguous_strides(operand.sizes)),
                    self._facts.checks,
                    tried=len(own),
                    right=found.count("right"),
                    refused=found.count("refused"),
                    wrong=found.count("wrong"),
                    failed=found.count("failed"),
                    verdict=self._verdict(*worst) if worst is not None else "not tried",
                )
            )
        return tuple(rows)

    def _verdict(self, treatment: Treatment, outcome: Outcome) -> OpVerdict:
        if treatment == "right":
            return "not comparable" if self._described.random else "honours strides"
        found = verdict_of(outcome, self._described)
        return "wrong values" if found == "honours strides" else found

    # ------------------------------------------------------------------------------------------------------ findings

    def findings(self, if_asked: Callable[[Case], str | None]) -> tuple[Judged, ...]:
        """The findings, errors first. `if_asked` is what it raises for a case where it is made to check."""
        baked, elided, unchecked = [], [], []
        for outcome in self._bad():
            treatment = self.treatment(outcome)
            eager_is_right = outcome.beside is not None and not outcome.beside.raised and self.has_model
            node = self._elided(outcome)
            if node is not None and _tells_a_copy(node):
                elided.append((outcome, node))
            elif eager_is_right and self._may_be_baked(outcome) and (asked := self._asked(outcome.case)):
                baked.append((outcome, asked[0]))
            elif treatment == "wrong" and not outcome.faults:
                self.unexplained.append(outcome)
            elif treatment == "wrong" or outcome.status in ("crashed", "hung"):
                unchecked.append(outcome)
            elif node is not None and (eager_is_right or ".view(" not in node.inner):
                elided.append((outcome, node))
        found = [*self._unchecked(unchecked, if_asked), *self._baked(baked), *self._gone(elided)]
        return tuple(sorted(found, key=lambda judged: judged.finding.severity != "error"))

    def _bad(self) -> Iterator[Outcome]:
        """Those that are not right, without those that a simpler case explains."""
        bad = [outcome for outcome in self._outcomes if self.treatment(outcome) != "right"]
        alone = {name for outcome in bad if len(outcome.case.arrangements) == 1 for name in outcome.case.arrangements}
        for outcome in bad:
            names = outcome.case.arrangements
            if len(names) == 1 or (len(names) > 1 and alone.isdisjoint(names)):
                yield outcome

    def _may_be_baked(self, outcome: Outcome) -> bool:
        """Whether a branch that was fixed explains it: a package that reads memory flat is wrong in another way."""
        return outcome.status == "raised" or self._facts.kind != "AOTInductor package" or not outcome.faults

    def _unchecked(self, failed: Sequence[Outcome], if_asked: Callable[[Case], str | None]) -> Iterator[Judged]:
        site = Site(expression=f"`{self._name}`")
        order = [operand.name for operand in self._described.operands]
        groups = {tuple(outcome.case.arrangements) for outcome in failed}
        for names in sorted(groups, key=lambda names: (len(names), [order.index(name) for name in names])):
            own = [outcome for outcome in failed if tuple(outcome.case.arrangements) == names]
            alike = [o for o in self._outcomes if tuple(o.case.arrangements) == names]
            held = tuple(outcome for outcome in alike if self.treatment(outcome) == "right")
            group = Group(self._name, site, names, tuple(own), held, len(own) == len(alike))
            inputs = [one for one in self._facts.inputs if one.name in names]
            error = if_asked(own[0].case) if self._facts.checks == "only if asked" else None
            yield Judged(sw207.found(group, inputs, self._facts, error), tuple(own))

    def _baked(self, found: Sequence[tuple[Outcome, Asked]]) -> Iterator[Judged]:
        for site in dict.fromkeys((asked.site.file, asked.site.line) for _, asked in found):
            own = [(o, asked) for o, asked in found if (asked.site.file, asked.site.line) == site]
            silent = [(o, asked) for o, asked in own if o.status == "ran"]
            shown = [(in_words(o), _said(o), asked) for o, asked in silent or own]
            yield Judged(
                sw208.found(self._name, self._facts.kind, shown, bool(silent), len(own)),
                tuple(o for o, _ in silent or own),
            )

    def _elided(self, outcome: Outcome) -> Node | None:
        """The view at which an exported program raises where the model does not; None if it is none."""
        eager_raises = outcome.beside is not None and outcome.beside.raised is not None
        if outcome.status != "raised" or eager_raises:
            return None
        node = self._node(outcome.case)
        return node if node is not None and node.target.startswith(_VIEWS) else None

    def _gone(self, found: Sequence[tuple[Outcome, Node]]) -> Iterator[Judged]:
        for name in dict.fromkeys(node.name for _, node in found):
            own = [outcome for outcome, node in found if node.name == name]
            node = next(node for _, node in found if node.name == name)
            inputs = [one for one in self._facts.inputs if one.name in own[0].case.arrangements]
            evidence = tuple(f"{in_words(outcome)}: {said(outcome)}" for outcome in own[:2])
            yield Judged(sw506.found(self._name, node, inputs, evidence, len(own)), tuple(own))


def _tells_a_copy(node: Node) -> bool:
    """Whether the source of a view says that it copies where that is needed."""
    return node.elided is not None or copies_in_line(node.inner)


def copies_in_line(line: str) -> bool:
    """Whether a line of source copies where that is needed, and does not view a tensor beside."""
    for text in (line, f"{line} pass", f"({line}"):
        try:
            tree = ast.parse(text.strip())
            break
        except (SyntaxError, ValueError, RecursionError):
            continue
    else:
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    views = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "view"]
    if views:  # then only a copy of what is viewed counts
        calls = [node for view in views for node in ast.walk(view.func) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _COPYING for call in calls)


def _by_kind(ask: Callable[[Case], _Answer]) -> Callable[[Case], _Answer]:
    """The same question, asked once for each kind of layouts: answers take runs."""
    known: dict[tuple[tuple[str, str], ...], _Answer] = {}

    def answer(case: Case) -> _Answer:
        key = tuple((name, kind_of(arrangement)) for name, arrangement in case.arrangements.items())
        if key not in known:
            known[key] = ask(case)
        return known[key]

    return answer


def _said(outcome: Outcome) -> str:
    if outcome.beside is not None and outcome.beside.faults:
        return "; ".join(f"{fault.what}: {fault.detail}" for fault in outcome.beside.faults[:2])
    return said(outcome)
