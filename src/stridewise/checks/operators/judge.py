"""From what runs came to, to verdicts of operands and findings. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from stridewise.checks.operators.case import Case, Described, Outcome
from stridewise.checks.operators.group import Group, in_words, is_clear, layouts_in_words, said
from stridewise.checks.rules import sw401, sw402, sw403, sw404, sw405, sw406, sw407
from stridewise.findings import Finding, Site
from stridewise.layout import is_contiguous
from stridewise.results.checks import Operand, OpVerdict, Role, Tried

_BY_BADNESS: tuple[OpVerdict, ...] = (
    "crashes",
    "hangs",
    "writes outside",
    "wrong values",
    "does nothing",
    "raises",
    "not comparable",
    "honours strides",
)
_RULES = {
    "SW401": sw401,
    "SW402": sw402,
    "SW403": sw403,
    "SW404": sw404,
    "SW405": sw405,
    "SW406": sw406,
    "SW407": sw407,
}


class Judged(Struct, frozen=True):
    """A finding, and the outcomes that it is about."""

    finding: Finding
    code: str
    group: Group


def verdict_of(outcome: Outcome, described: Described) -> OpVerdict:
    """What one run says of the operator."""
    ends: dict[str, OpVerdict] = {"crashed": "crashes", "hung": "hangs", "raised": "raises"}
    ends |= {"not applicable": "not tried"}
    if outcome.status != "ran":
        return ends[outcome.status]
    found = {fault.verdict for fault in outcome.faults}
    return next(
        (v for v in _BY_BADNESS if v in found), "honours strides" if _is_comparable(described) else "not comparable"
    )


def _is_comparable(described: Described) -> bool:
    """Whether it gives something whose values can be held against those of another run."""
    writes = any(operand.role in ("in place", "out") for operand in described.operands)
    return not described.random and bool(described.outputs or writes or described.magnitudes)


def tried(outcomes: Sequence[Outcome], described: Described) -> tuple[Tried, ...]:
    """A row for each layout that could be run."""
    return tuple(
        Tried(
            tuple(outcome.case.arrangements),
            layouts_in_words(outcome) if outcome.case.arrangements else (in_words(outcome),),
            outcome.case.aspect,
            verdict_of(outcome, described),
            outcome.faults[0].what if outcome.faults else None,
            max((fault.difference for fault in outcome.faults if fault.difference is not None), default=None),
            said(outcome) if outcome.faults or outcome.message else None,
        )
        for outcome in outcomes
        if outcome.status != "not applicable"
    )


def operands(outcomes: Sequence[Outcome], described: Described) -> tuple[Operand, ...]:
    """How each operand's own layouts are treated, and those of the gradients that come in."""
    ran = [outcome for outcome in outcomes if outcome.status != "not applicable" and outcome.case.aspect != "fake"]
    wrong = [
        o.case.sizes for o in ran if o.case.sizes and not o.case.arrangements and _is_bad(verdict_of(o, described))
    ]
    ran = [outcome for outcome in ran if not outcome.case.sizes or outcome.case.sizes not in wrong]
    rows = []
    for operand in described.operands:
        own = [o for o in ran if set(o.case.arrangements) == {operand.name} and not _has_gradient(o)]
        rows.append(_row(operand.name, operand.role, operand.sizes, operand.dtype, own, described))
    gradients = [outcome for outcome in ran if not outcome.case.arrangements and _has_gradient(outcome)]
    if gradients:
        rows.append(_row("gradient", "gradient", None, None, gradients, described))
    return tuple(rows)


def _row(
    name: str,
    role: Role,
    sizes: tuple[int, ...] | None,
    dtype: str | None,
    own: Sequence[Outcome],
    described: Described,
) -> Operand:
    verdicts = [verdict_of(outcome, described) for outcome in own]
    worst: OpVerdict = min(verdicts, key=_BY_BADNESS.index, default="not tried")
    clear = all(is_clear(outcome.message) for outcome in own if outcome.status == "raised")
    failed = sum(map(_is_bad, verdicts))
    return Operand(name, role, sizes, dtype, worst, len(own), failed, clear if worst == "raises" else None)


def _has_gradient(outcome: Outcome) -> bool:
    """Whether the gradient that came in was not contiguous."""
    return outcome.case.gradient is not None and outcome.case.gradient.name != "contiguous"


def judge(
    outcomes: Sequence[Outcome], described: Described, site: Site, *, own_fake: bool = True
) -> tuple[Judged, ...]:
    """The findings, the worst codes first. `own_fake` is whether the fake kernel is the operator's, and not torch's."""
    ran = [outcome for outcome in outcomes if outcome.status != "not applicable"]
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in ran:
        for key in _keys(outcome, ran, described):
            groups.setdefault(key, []).append(outcome)
    found = []
    for key, failed in groups.items():
        code, names = str(key[0]), tuple(failed[0].case.arrangements)
        aspects = {outcome.case.aspect for outcome in failed}
        alike = [
            outcome
            for outcome in ran
            if tuple(outcome.case.arrangements) == names and outcome.case.aspect in aspects and _is_telling(outcome)
        ]
        held = tuple(outcome for outcome in alike if not _is_bad(verdict_of(outcome, described)))
        written = any(operand.name in names and operand.role in ("in place", "out") for operand in described.operands)
        always = all(any(outcome is each for each in failed) for outcome in alike)
        group = Group(described.op, site, names, tuple(failed), held, always, written, own_fake)
        found.append(Judged(_RULES[code].found(group), code, group))
    return tuple(sorted(found, key=lambda entry: (entry.finding.severity == "note", entry.code)))


def _is_telling(outcome: Outcome) -> bool:
    """Whether the layouts are others than contiguous, also to a walk over memory, of the sizes of the sample."""
    given = [outcome.layouts[name] for name in outcome.case.arrangements if name in outcome.layouts]
    return not outcome.case.sizes and not (given and all(map(is_contiguous, given)))


def _keys(outcome: Outcome, ran: Sequence[Outcome], described: Described) -> Iterator[tuple[object, ...]]:
    """The findings that an outcome belongs to: a code, and the operands; none if simpler ones explain it."""
    verdict = verdict_of(outcome, described)
    if not _is_bad(verdict) or _is_explained(outcome, verdict, ran, described):
        return
    names = tuple(outcome.case.arrangements)
    if verdict in ("crashes", "hangs"):
        yield "SW406", names, verdict
    elif verdict == "raises":
        yield "SW407", names, is_clear(outcome.message)
    elif outcome.case.aspect == "fake":
        yield "SW403", names
    else:
        for fault in outcome.faults:
            if fault.verdict == "writes outside":
                yield "SW402", names, fault.what
            elif fault.verdict == "does nothing":
                yield "SW405", names
            elif not names and not _has_gradient(outcome) and fault.reads_past:
                yield "SW402", names, "reads"
            elif outcome.case.aspect != "values" and not names:
                yield "SW404", names
            else:
                yield "SW401", names
            return


def _is_explained(outcome: Outcome, verdict: OpVerdict, ran: Sequence[Outcome], described: Described) -> bool:
    """Whether a simpler case, of which this one is more of, goes wrong already."""
    case = outcome.case
    return any(
        other is not outcome and _is_simpler(other.case, case) and _is_bad(verdict_of(other, described))
        for other in ran
    ) and not (verdict in ("crashes", "hangs", "writes outside") and not _same(outcome, verdict, ran, described))


def _same(outcome: Outcome, verdict: OpVerdict, ran: Sequence[Outcome], described: Described) -> bool:
    """Whether a simpler case has this very verdict, or damages memory, which may end in any other."""
    return any(
        other is not outcome
        and _is_simpler(other.case, outcome.case)
        and verdict_of(other, described) in (verdict, "writes outside")
        for other in ran
    )


def _is_simpler(one: Case, other: Case) -> bool:
    """Whether all that is unusual about one case is so about the other, and more."""
    if one == other:
        return False
    if one.aspect != "values" and one.aspect != other.aspect:
        return False
    if one.aspect == "values" and other.aspect == "fake":
        return False
    if one.gradient is not None and one.gradient.name != "contiguous" and one.gradient != other.gradient:
        return False
    if one.sizes and one.sizes != other.sizes:
        return False
    if other.sizes and not one.sizes and one.arrangements and other.arrangements:
        # Of other sizes a layout is another: of the same operands and kind is alike enough.
        return set(one.arrangements) <= set(other.arrangements)
    return all(other.arrangements.get(name) == arrangement for name, arrangement in one.arrangements.items())


def _is_bad(verdict: OpVerdict) -> bool:
    return verdict not in ("honours strides", "not comparable", "not tried")
