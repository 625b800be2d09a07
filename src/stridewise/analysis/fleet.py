"""From the summary of many files to what is said about them: spreads, findings, and the files unlike the others."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import get_args

import msgspec
from msgspec import Struct

from stridewise.analysis.summary import Found, Summary, mean_of
from stridewise.results import Fleet, FleetFigure, FleetFinding, FleetNote, FleetRow, Outlier, Spread

_SIGMAS = 3.5
"""Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): beyond it a modified z-score is called one."""
_SIGMA_OF_MAD = 1.4826
"""What makes a median absolute deviation the standard deviation of a normal distribution."""


class _Floor(Struct, frozen=True):
    """A difference that nobody would act on, however equal the others are."""

    absolute: float
    of_median: float


_FLOORS: dict[FleetFigure, _Floor] = {
    "step_ns": _Floor(0, 0.05),
    "copies": _Floor(0.5, 0.01),
    "bytes_moved": _Floor(1000, 0.01),
    "share": _Floor(0.005, 0.05),
    "layout_kernels_share": _Floor(0.005, 0.05),
}
"""`duration_ns` has none: `share` says it, apart from how fast a rank's machine is."""


def assemble_fleet(summary: Summary, *, min_share: float, notes: Sequence[str] = ()) -> Fleet:
    """What many files say together; `notes` are about all of them."""
    rows = summary.rows
    findings = sorted(map(_finding, summary.findings), key=_costliest_first)
    figures: dict[FleetFigure, Spread] = {}
    for figure in get_args(FleetFigure):
        if (spread := _spread(rows, figure)) is not None:
            figures[figure] = spread
    about_all = [FleetNote(text, len(rows)) for text in (*notes, *_missing_ranks(summary), *_unlike(rows))]
    return Fleet(
        ok=not any(row.errors or row.warnings for row in rows),
        findings=tuple(findings),
        figures=figures,
        outliers=outliers(rows),
        rows=rows,
        failures=summary.failures,
        notes=(*about_all, *summary.notes),
        environment=summary.environment,
        min_share=min_share,
    )


def outliers(rows: Sequence[FleetRow]) -> tuple[Outlier, ...]:
    """The figures in which a file differs from the others, by file.

    A figure is an outlier when it is further from the median of all files than 3.5 standard deviations, taken from the
    median absolute deviation, which a few odd files cannot move, **and** further than a difference that matters: 5 % of
    a step's time, half a copy, 1 % of the copies or bytes, half a percentage point of a share and 5 % of it. The second
    alone decides where most files are equal, and the deviation is 0. At least three files must have measured the
    figure: of two that differ nobody knows which is odd. Files are compared only with those whose figures are of the
    same kind: per step or of a whole run, of step time or of kernel-busy time.
    """
    found = []
    for figure, floor in _FLOORS.items():
        values = [(row, value) for row in _comparable(rows, figure) if (value := getattr(row, figure)) is not None]
        if len(values) < 3:
            continue
        middle = median(value for _, value in values)
        deviation = median(abs(value - middle) for _, value in values)
        tolerance = max(_SIGMAS * _SIGMA_OF_MAD * deviation, floor.absolute, floor.of_median * abs(middle))
        found += [
            Outlier(row.at, figure, value, middle, tolerance)
            for row, value in values
            if abs(value - middle) > tolerance
        ]
    return tuple(sorted(found, key=lambda outlier: outlier.at.order))


def _comparable(rows: Sequence[FleetRow], figure: FleetFigure) -> list[FleetRow]:
    kind = _kind(figure)
    counts = Counter(kind(row) for row in rows if getattr(row, figure) is not None)
    # The commonest kind; of equally common ones the one with steps, which its name makes the larger.
    usual = max(counts, key=lambda key: (counts[key], key), default=None)
    return [row for row in rows if kind(row) == usual]


def _kind(figure: FleetFigure) -> Callable[[FleetRow], tuple[bool, str]]:
    if figure == "share":
        return lambda row: (row.steps_found, row.share_of)
    if figure == "layout_kernels_share":
        return lambda row: (True, "")
    return lambda row: (row.steps_found, "")


def _spread(rows: Sequence[FleetRow], figure: FleetFigure) -> Spread | None:
    values = [(row.at, value) for row in _comparable(rows, figure) if (value := getattr(row, figure)) is not None]
    if not values:
        return None
    least_at, least = min(values, key=lambda pair: pair[1])
    most_at, most = max(values, key=lambda pair: pair[1])
    return Spread(len(values), median(value for _, value in values), least, least_at, most, most_at)


def _finding(found: Found) -> FleetFinding:
    return msgspec.structs.replace(found.finding, mean=mean_of(found))


def _costliest_first(finding: FleetFinding) -> tuple[object, ...]:
    total = (finding.mean.duration_ns or 0) * finding.files, (finding.mean.bytes_moved or 0) * finding.files
    return finding.severity != "error", -total[0], -total[1], finding.code, finding.fingerprint


def _missing_ranks(summary: Summary) -> list[str]:
    """Name ranks between the first and the last of which there is no file, where most are there."""
    files = [row.at for row in summary.rows] + [failed.at for failed in summary.failures]
    ranks = {at.rank for at in files if at.rank is not None}
    if not ranks or max(ranks) - min(ranks) >= 2 * len(ranks):
        return []
    missing = [rank for rank in range(min(ranks), max(ranks)) if rank not in ranks]
    if not missing:
        return []
    shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return [f"Of ranks {min(ranks)} to {max(ranks)} there is no file of rank {shown}."]


def _unlike(rows: Sequence[FleetRow]) -> list[str]:
    without = [row for row in rows if not row.steps_found]
    if not without or len(without) == len(rows):
        return []
    return [
        f"No steps were found in {len(without)} of {len(rows)} files: their figures are of a whole run, and are not"
        " compared with those of the others."
        if len(without) <= len(rows) - len(without)
        else f"Steps were found in only {len(rows) - len(without)} of {len(rows)} files: figures of a whole run are"
        " compared, and not with theirs."
    ]
