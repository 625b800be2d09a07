"""Which of the edits that won is the first to propose: a fixed order wherever measurements can't tell them apart."""

from collections.abc import Sequence

from msgspec import Struct

from stridewise.findings import Finding
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import place_of
from stridewise.repair.kinds import all_kinds
from stridewise.repair.trial.forecast import Forecast
from stridewise.results import Measurement, Report


class Tried(Struct):
    """A candidate, and what came of it."""

    candidate: Candidate
    distance: int = 0
    """How many steps of its finding's path it lies behind the origin."""
    figures: Measurement | None = None
    """None if nobody came to it."""
    report: Report | None = None
    """Of a recording of the changed program."""
    kept: bool = False
    forecast: Forecast | None = None


Winner = tuple[Tried, Measurement]


def winners_of(tried: Sequence[Tried]) -> list[Winner]:
    """Those that won, the best first: of those that can't be told from the best, as always, the simplest edit."""
    left = [(entry, entry.figures) for entry in tried if entry.figures is not None and entry.figures.verdict == "won"]
    ordered = []
    while left:
        best = min((figures for _, figures in left), key=lambda figures: figures.ratio or 1)
        equal = [winner for winner in left if (winner[1].low or 1) <= (best.high or 1)]
        first = min(equal, key=lambda winner: _preference(winner[0]))
        left.remove(first)
        ordered.append(first)
    return ordered


def _preference(entry: Tried) -> tuple[bool, int, int, int, str, int, int]:
    """How much a person who reads the diff has to think about; then how far it lies behind where the strides begin.

    Nothing measured goes into it: of edits that can't be told apart, every run proposes the same.
    """
    candidate, site = entry.candidate, entry.candidate.site
    kind = [kind.name for kind in all_kinds()].index(candidate.kind)
    place = site.file or "", site.line or 0, site.column or 0
    return bool(candidate.conversions), len(candidate.edits), entry.distance, kind, *place


def distance(candidate: Candidate, findings: Sequence[Finding]) -> int:
    """0 at the origin of a finding that it mends, then counted along the carriers; payers come last."""
    found = 0
    for finding in findings:
        if finding.fingerprint in candidate.findings:
            path = [finding.origin or finding.site, *(carrier.site for carrier in finding.carriers)]
            places = [place_of(site) for site in path]
            own = place_of(candidate.site)
            found = max(found, places.index(own) if own in places else len(places))
    return found
