"""What a result of the lab has to be beside its types: a file may be broken, or made to mislead. No torch."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator

from stridewise.results.lab import Comparison, ExperimentResult, Lab, verdict

_LONGEST = 60
"""Characters of a name that a message quotes."""


def fault(lab: Lab) -> str | None:
    """The first thing in it that can't be, in words; None if all fits together."""
    return next(_faults(lab), None)


def _faults(lab: Lab) -> Iterator[str]:
    if lab.device not in ("cpu", "cuda"):
        yield f"its device is {_quoted(lab.device)}, neither cpu nor cuda."
    try:
        datetime.date.fromisoformat(lab.date)
    except ValueError:
        yield f"{_quoted(lab.date)} is no date."
    for name in _twice(each.name for each in lab.experiments):
        yield f"the experiment {_quoted(name)} is in it twice."
    for experiment in lab.experiments:
        yield from _of_experiment(experiment)


def _of_experiment(experiment: ExperimentResult) -> Iterator[str]:
    where = _quoted(experiment.name)
    for number in _twice(claim.number for claim in experiment.claims):
        yield f"{number} is twice in {where}."
    for claim in experiment.claims:
        if claim.verdict != verdict(claim.predictions):
            yield f"the verdict on {claim.number} does not follow from its predictions."
        if any(made.unclear and made.came_true is not None for made in claim.predictions):
            yield f"a prediction of {claim.number} is left open and decided at once."
    for title in _twice(comparison.title for comparison in experiment.comparisons):
        yield f"the comparison {_quoted(title)} is twice in {where}."
    for comparison in experiment.comparisons:
        yield from _of_comparison(comparison)


def _of_comparison(comparison: Comparison) -> Iterator[str]:
    where = _quoted(comparison.title)
    for name in _twice(arm.name for arm in comparison.arms):
        yield f"the arm {_quoted(name)} is twice in {where}."
    first, *others = comparison.arms
    if first.ratio is not None or first.same is not None:
        yield f"the first arm of {where} is compared with itself."
    for arm in others:
        if arm.ratio is None:
            yield f"{_quoted(arm.name)} in {where} has no ratio to the first arm."
        elif not arm.ratio.low <= arm.ratio.middle <= arm.ratio.high:
            yield f"the ratio of {_quoted(arm.name)} in {where} lies outside of its interval."


def _twice(names: Iterable[str]) -> Iterator[str]:
    return (name for name, times in Counter(names).items() if times > 1)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
