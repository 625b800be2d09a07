"""The pages of the lab: experiments with their plots and claims, and runs side by side."""

import math
from collections.abc import Iterator

from stridewise.report.content import Contents
from stridewise.report.html.model import Exhibit, Figure, Mark, Page, Plot, Table, Tested, Told
from stridewise.report.lab_words import (
    VERDICTS,
    comparison_headline,
    copied,
    counted,
    counted_as,
    headline,
    how,
    machine,
    mark,
    ran,
    ratio,
    sizes,
)
from stridewise.results import numbers
from stridewise.results.lab import (
    ArmRow,
    ClaimResult,
    Comparison,
    Counts,
    ExperimentResult,
    Lab,
    LabComparison,
    LabSide,
    Ratio,
)

_ENDS = math.log2(2)
"""How far a plot of ratios reaches on both sides of 1 at least."""
_SAME = {"different": "its results are others", "within rounding": "equal within rounding"}
_WIDTH = 96
"""Percent of a plot of ratios that its rows may take."""
_FEW = 3
"""Experiments that are open when the page is opened."""


def page(lab: Lab, contents: Contents) -> Page:
    """An overview of the claims, then each experiment."""
    counts = counted(claim.verdict for claim in lab.claims())
    return Page(
        command="stridewise lab",
        verdict=headline(lab),
        tone="look",
        remarks=(lab.rule, machine(lab.machine), ran(lab)),
        figures=tuple(Figure(str(counts[verdict]), verdict) for verdict in VERDICTS),
        exhibits=tuple(_exhibit(each, is_open=len(lab.experiments) <= _FEW) for each in lab.experiments),
        tables=(_overview(lab),) if lab.experiments else (),
        notes=lab.notes,
    )


def beside(comparison: LabComparison, contents: Contents) -> Page:
    """Verdicts and ratios, a column for each run."""
    names = tuple(side.name for side in comparison.sides)
    claims = Table(
        "Claims",
        ("claim", "section", "what is claimed", *names),
        tuple((row.number, row.section, row.text, *(each or "" for each in row.verdicts)) for row in comparison.claims),
        prose=(2,),
    )
    arms = Table(
        "Ratios of time",
        ("experiment", "arm", "over", "", *names),
        tuple(map(_ratio_row, comparison.arms)),
        numeric=tuple(range(4, 4 + len(names))),
        code=(1, 2),
        note="A time over that of the comparison's first arm, with its 95 % interval: above 1 is slower. Empty where "
        "it was not run. ≠: the intervals of two runs don't meet.",
    )
    return Page(
        command="stridewise lab --compare",
        verdict=comparison_headline(comparison),
        tone="look" if comparison.disputed else "fine",
        tables=(_machines(comparison.sides), claims, *((arms,) if arms.rows else ())),
    )


def _ratio_row(row: ArmRow) -> tuple[str, ...]:
    said = ("" if each is None else ratio(each) for each in row.ratios)
    return row.experiment, row.arm, row.over, "≠" if row.differs else "", *said


def _machines(sides: tuple[LabSide, ...]) -> Table:
    rows = tuple((side.name, machine(side.machine), how(side)) for side in sides)
    return Table("Machines", ("run", "machine", "how"), rows, leading=True)


def _overview(lab: Lab) -> Table:
    rows = tuple((claim.number, claim.section, claim.verdict, claim.text, claim.correct) for claim in lab.claims())
    return Table(
        "All claims",
        ("claim", "section", "verdict", "what is claimed", "what is right"),
        rows,
        prose=(3, 4),
        folded=True,
        leading=True,
    )


def _exhibit(experiment: ExperimentResult, *, is_open: bool) -> Exhibit:
    return Exhibit(
        name=experiment.name,
        title=experiment.title,
        method=experiment.method,
        sizes=sizes(experiment.sizes),
        plots=(*map(_ratios, experiment.comparisons), *map(_counts, experiment.counts)),
        claims=tuple(map(_tested, experiment.claims)),
        failed=experiment.failed or "",
        is_open=is_open,
    )


def _tested(claim: ClaimResult) -> Tested:
    told = (Told(mark(made), made.text, made.measured) for made in claim.predictions)
    return Tested(claim.number, claim.section, claim.verdict, claim.text, claim.correct, tuple(told))


def _ratios(comparison: Comparison) -> Plot:
    """Times over that of the first arm, on a logarithmic scale that all rows share."""
    found = [arm.ratio or Ratio(1.0, 1.0, 1.0) for arm in comparison.arms]
    low = min(-_ENDS / 4, *(math.log2(each.low) for each in found))
    high = max(_ENDS, *(math.log2(each.high) for each in found))

    def at(value: float) -> float:
        return round((100 - _WIDTH) / 2 + _WIDTH * (math.log2(value) - low) / (high - low), 2)

    def rows() -> Iterator[Mark]:
        for arm, each in zip(comparison.arms, found, strict=True):
            said = "the first" if arm.ratio is None else ratio(arm.ratio)
            details = (numbers.duration(arm.median_ns), copied(arm), _SAME.get(arm.same or "", ""))
            yield Mark(arm.name, at(each.low), at(each.high), at(each.middle), said, ", ".join(filter(None, details)))

    note = f"Time over that of the first, with 95 % intervals over {comparison.rounds} rounds; to the right is slower."
    return Plot(comparison.title, tuple(rows()), at(1.0), note)


def _counts(counts: Counts) -> Plot:
    most = max(counts.values.values(), default=0) or 1

    rows = (
        Mark(label, 0.0, round(100 * max(value, 0) / most, 2), None, counted_as(value, counts.unit))
        for label, value in counts.values.items()
    )
    return Plot(counts.title, tuple(rows))
