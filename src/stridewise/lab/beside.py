"""Lays runs of the lab side by side. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stridewise.results.lab import ArmRow, ClaimRow, Lab, LabComparison, LabSide, Ratio, claim_order


def side_by_side(runs: Mapping[str, Lab]) -> LabComparison:
    """Every claim and every arm that one of the runs has, in their order; `runs` by the names to show."""
    sides = tuple(_side(name, run) for name, run in runs.items())
    told = [{claim.number: claim for claim in run.claims()} for run in runs.values()]
    claims = []
    for number in sorted({number for each in told for number in each}, key=claim_order):
        known = next(each[number] for each in told if number in each)
        verdicts = tuple(each[number].verdict if number in each else None for each in told)
        claims.append(ClaimRow(number, known.section, known.text, known.correct, verdicts))
    ratios = [_ratios(run) for run in runs.values()]
    sizes = [{each.name: each.sizes for each in run.experiments} for run in runs.values()]
    keys = dict.fromkeys(key for each in ratios for key in each)
    arms = tuple(_row(key, [each.get(key) for each in ratios], sizes) for key in keys)
    return LabComparison(sides, tuple(claims), arms)


def _side(name: str, run: Lab) -> LabSide:
    failed = sum(bool(each.failed) for each in run.experiments)
    return LabSide(name, run.machine, run.device, run.quick, run.date, run.whole, failed)


def _row(
    key: tuple[str, str, str, str], ratios: Sequence[Ratio | None], sizes: Sequence[Mapping[str, Mapping[str, int]]]
) -> ArmRow:
    known = [(ratio, told[key[0]]) for ratio, told in zip(ratios, sizes, strict=True) if ratio is not None]
    differs = any(one.low > other.high and size == its for one, size in known for other, its in known)
    return ArmRow(*key, ratios=tuple(ratios), differs=differs)


def _ratios(run: Lab) -> dict[tuple[str, str, str, str], Ratio | None]:
    return {
        (experiment.name, comparison.title, arm.name, comparison.arms[0].name): arm.ratio
        for experiment in run.experiments
        for comparison in experiment.comparisons
        for arm in comparison.arms[1:]
    }
