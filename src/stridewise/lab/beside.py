"""Lays runs of the lab side by side. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from stridewise.results.lab import ArmRow, ClaimRow, Lab, LabComparison, LabSide, Ratio, claim_order


def side_by_side(runs: Mapping[str, Lab]) -> LabComparison:
    """Every claim and every arm that one of the runs has, in their order; `runs` by the names to show."""
    sides = tuple(LabSide(name, run.machine, run.device, run.quick, run.date) for name, run in runs.items())
    told = [{claim.number: claim for claim in run.claims()} for run in runs.values()]
    claims = []
    for number in sorted({number for each in told for number in each}, key=claim_order):
        known = next(each[number] for each in told if number in each)
        verdicts = tuple(each[number].verdict if number in each else None for each in told)
        claims.append(ClaimRow(number, known.section, known.text, known.correct, verdicts))
    ratios = [_ratios(run) for run in runs.values()]
    keys = dict.fromkeys(key for each in ratios for key in each)
    arms = tuple(ArmRow(*key, ratios=tuple(each.get(key) for each in ratios)) for key in keys)
    return LabComparison(sides, tuple(claims), arms)


def _ratios(run: Lab) -> dict[tuple[str, str, str, str], Ratio | None]:
    return {
        (experiment.name, comparison.title, arm.name, comparison.arms[0].name): arm.ratio
        for experiment in run.experiments
        for comparison in experiment.comparisons
        for arm in comparison.arms[1:]
    }
