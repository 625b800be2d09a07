"""Two reports against each other: what appeared, grew, shrank and went."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from stridewise.analysis.matching import names_of, pairs, place
from stridewise.config import codes_of, is_wanted
from stridewise.findings import Cost, Finding, Payer
from stridewise.results import (
    Cause,
    CostDelta,
    Delta,
    Diff,
    DiffSide,
    DiffTotals,
    FindingDiff,
    KernelDiff,
    PayerDiff,
    Report,
    Trend,
    Worse,
)

_ROUNDING = 1e-9
"""Relative. Sums of figures per step differ by less: a third is no binary fraction."""

_RANK: dict[Trend, int] = {"appeared": 0, "grew": 0, "changed": 1, "unknown": 2, "shrank": 3, "went": 3, "same": 4}


def compare(
    old: Report,
    new: Report,
    *,
    tolerance: float = 0.0,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    min_share: float = 0.0,
) -> Diff:
    """Compare what two reports say of a step.

    Copies and bytes are judged in all, so that a finding that moved is no growth: they may grow by `tolerance`, a share
    of what they were. Hazards are judged one by one and may not grow: no wrong result makes up for another. Time is
    shown and never judged. `select` and `ignore` are codes or their beginnings; what is judged is then what the
    findings cost that are left.
    """
    wanted, unwanted = codes_of(select), codes_of(ignore)
    unseen = {*old.totals.unseen, *new.totals.unseen}
    before, after = _Side(old, wanted, unwanted, unseen), _Side(new, wanted, unwanted, unseen)
    both = _Both(before, after)
    rows = [both.finding(*pair) for pair in pairs(before.findings, after.findings)]
    growth = both.total_growth()
    worse = _worse(both, growth, rows, tolerance)
    return Diff(
        ok=not worse,
        worse=worse,
        tolerance=tolerance,
        old=before.measured_on(),
        new=after.measured_on(),
        totals=both.totals(growth),
        findings=tuple(sorted(rows, key=_order)),
        kernels=both.kernels(),
        notes=tuple(_notes(both, rows, [*wanted, *(f"not {code}" for code in unwanted)])),
        min_share=min_share,
    )


class _Figures(Struct, frozen=True):
    """A `Cost` in which nothing need be measured."""

    copies: float | None = None
    bytes_moved: float | None = None
    duration_ns: float | None = None
    share: float | None = None


class _Side:
    """One of the two reports, and what it can tell."""

    def __init__(
        self, report: Report, select: tuple[str, ...], ignore: tuple[str, ...], unseen: Collection[str] = ()
    ) -> None:
        totals = self.totals = report.totals
        self.report = report
        self.findings = [finding for finding in report.findings if is_wanted(finding.code, select, ignore)]
        self.measured = totals.copies is not None
        self.cost = _Figures(totals.copies, totals.bytes_moved, totals.duration_ns, totals.share)
        if select or ignore:
            self.cost = _sum(finding.cost for finding in self.findings) if self.measured else _Figures()
        elif self.measured:
            self.cost = _less(self.cost, [totals.by_kind[kind] for kind in unseen if kind in totals.by_kind])
        charged = sum(finding.cost.copies or 0 for finding in report.findings)
        # Findings add up to the totals, unless --select or --ignore left some out when the report was made.
        self.left_out = max(0.0, (totals.copies or 0) - charged) if _differ(totals.copies or 0, charged) else 0.0
        self.codes = {finding.code for finding in report.findings}
        self.unseen_codes = {"SW107"} if "library" in totals.unseen else set()
        self.hazards = sum(map(_hazards, self.findings))

    def absent(self, code: str) -> _Figures:
        """What a finding costs that the report does not have: nothing, if it would have it."""
        if not self.measured or (self.left_out and code not in self.codes) or code in self.unseen_codes:
            return _Figures()
        return self.nothing()

    def nothing(self) -> _Figures:
        """No cost, in those figures that were measured at all."""
        return _Figures(
            copies=0 if self.measured else None,
            bytes_moved=0 if self.measured else None,
            duration_ns=None if self.totals.duration_ns is None else 0,
            share=None if self.totals.share is None else 0,
        )

    def kernels(self) -> dict[tuple[str, str | None, Cause], tuple[float, float]] | None:
        """Count and time of the kernels that only change layout; None if the report lists no kernel at all."""
        if not self.report.kernels:
            return None
        found: dict[tuple[str, str | None, Cause], list[tuple[int, int]]] = defaultdict(list)
        for row in self.report.kernels:
            if row.cause is not None:
                found[row.name, row.op, row.cause].append((row.count, row.duration_ns))
        return {
            key: (
                sum(count for count, _ in rows) / self.totals.steps,
                sum(time for _, time in rows) / self.totals.steps,
            )
            for key, rows in found.items()
        }

    def measured_on(self) -> DiffSide:
        totals = self.totals
        return DiffSide(totals.steps, totals.steps_found, totals.share_of, self.report.environment)


def _less(cost: _Figures, parts: Sequence[Cost]) -> _Figures:
    """A cost without some of its parts; what a part does not tell, the rest does not either."""

    def rest(whole: float | None, figures: Sequence[float | None]) -> float | None:
        known = [figure for figure in figures if figure is not None]
        return None if whole is None or len(known) < len(figures) else max(0.0, whole - sum(known))

    return _Figures(
        copies=rest(cost.copies, [part.copies for part in parts]),
        bytes_moved=rest(cost.bytes_moved, [part.bytes_moved for part in parts]),
        duration_ns=rest(cost.duration_ns, [part.duration_ns for part in parts]),
        share=rest(cost.share, [part.share for part in parts]),
    )


class _Both:
    """The two sides together, and what a difference between them means."""

    def __init__(self, old: _Side, new: _Side) -> None:
        self.old = old
        self.new = new
        self.same_steps = old.totals.steps == new.totals.steps
        self.same_shares = old.totals.share_of == new.totals.share_of

    def growth(self, old: _Figures, new: _Figures, costs: Iterable[Cost]) -> tuple[float, float] | None:
        """By how many copies and bytes something grew; None if that is not known. Unknown bytes have not grown.

        Where the step counts differ, less than one copy a step is none, and moves nothing: what happens once in a
        recording is another figure per step then. `costs` tell how much such a copy may move.
        """
        if old.copies is None or new.copies is None:
            return None
        copies = _growth(old.copies, new.copies)
        known = old.bytes_moved is not None and new.bytes_moved is not None
        moved = _growth(old.bytes_moved or 0, new.bytes_moved or 0) if known else 0.0
        if not self.same_steps and abs(copies) < 1:
            largest = max(((cost.bytes_moved or 0) / cost.copies for cost in costs if cost.copies), default=0.0)
            moved = 0.0 if abs(moved) <= abs(copies) * largest * (1 + _ROUNDING) else moved
            copies = 0.0
        return copies, moved

    def cost(self, old: _Figures, new: _Figures) -> CostDelta:
        shares = _delta(old.share, new.share)
        return CostDelta(
            copies=_delta(old.copies, new.copies),
            bytes_moved=_delta(old.bytes_moved, new.bytes_moved),
            duration_ns=_delta(old.duration_ns, new.duration_ns),
            share=shares if self.same_shares else Delta(shares.old, shares.new, None),
        )

    def finding(self, old: Finding | None, new: Finding | None) -> FindingDiff:
        named = new or old
        assert named is not None
        before = _figures(old.cost) if old else self.old.absent(named.code)
        after = _figures(new.cost) if new else self.new.absent(named.code)
        known = before.copies is not None and after.copies is not None
        counts = [finding.count if finding else (0 if known else None) for finding in (old, new)]
        trend: Trend
        if not known:
            trend = "unknown"
        elif old is None or new is None:
            trend = "appeared" if old is None else "went"
        else:
            trend = self._trend(old, new)
        return FindingDiff(
            trend=trend,
            code=named.code,
            title=named.title,
            site=named.site,
            old_site=old.site if old else None,
            old_severity=old.severity if old else None,
            new_severity=new.severity if new else None,
            count=_delta(*counts),
            cost=self.cost(before, after),
            payers=self._payers(old, new, named.code),
            fingerprint=named.fingerprint,
        )

    def _trend(self, old: Finding, new: Finding) -> Trend:
        if hazards := _hazards(new) - _hazards(old):
            return "grew" if hazards > 0 else "shrank"
        if not old.cost.copies and not new.cost.copies:  # it points at copies that others are charged with
            return _direction(new.count - old.count)
        growth = self.growth(_figures(old.cost), _figures(new.cost), (old.cost, new.cost))
        return "unknown" if growth is None else _direction(*growth)

    def _payers(self, old: Finding | None, new: Finding | None, code: str) -> tuple[PayerDiff, ...]:
        ours, theirs = _payers_by_place(old), _payers_by_place(new)
        rows = []
        for key in ours | theirs:
            before = _sum(payer.cost for payer in ours[key]) if key in ours else self._absent(self.old, old, code)
            after = _sum(payer.cost for payer in theirs[key]) if key in theirs else self._absent(self.new, new, code)
            payers = [*theirs.get(key, ()), *ours.get(key, ())]
            growth = self.growth(before, after, (payer.cost for payer in payers))
            trend: Trend
            if growth is None:
                trend = "unknown"
            elif key not in ours or key not in theirs:
                trend = "appeared" if key not in ours else "went"
            else:
                trend = _direction(*growth)
            rows.append(PayerDiff(trend, payers[0].site, payers[0].op, self.cost(before, after)))
        return tuple(sorted(rows, key=lambda row: (*_size(row.trend, row.cost), row.site.where, row.op)))

    def _absent(self, side: _Side, finding: Finding | None, code: str) -> _Figures:
        return side.nothing() if finding is not None else side.absent(code)

    def total_growth(self) -> tuple[float, float] | None:
        """By how many copies and bytes the step grew."""
        return self.growth(
            self.old.cost, self.new.cost, (finding.cost for finding in (*self.old.findings, *self.new.findings))
        )

    def totals(self, growth: tuple[float, float] | None) -> DiffTotals:
        old, new = self.old.totals, self.new.totals
        kernels = [totals.layout_kernels.count if totals.layout_kernels else None for totals in (old, new)]
        return DiffTotals(
            trend="unknown" if growth is None else _direction(*growth),
            hazards=_delta(self.old.hazards, self.new.hazards),
            cost=self.cost(self.old.cost, self.new.cost),
            step_ns=_delta(old.step_ns, new.step_ns),
            layout_kernels=_delta(*kernels),
        )

    def kernels(self) -> tuple[KernelDiff, ...]:
        old, new = self.old.kernels(), self.new.kernels()
        if old is None or new is None:
            return ()
        rows = []
        for key in old | new:
            (count, time), (new_count, new_time) = old.get(key, (0, 0)), new.get(key, (0, 0))
            grown = _growth(count, new_count)
            trend: Trend
            if key not in old or key not in new:
                trend = "appeared" if key not in old else "went"
            else:
                trend = _direction(grown if self.same_steps or abs(grown) >= 1 else 0)
            rows.append(KernelDiff(trend, *key, _delta(count, new_count), _delta(time, new_time)))
        return tuple(sorted(rows, key=lambda row: (_RANK[row.trend], -abs(row.duration_ns.delta or 0), row.name)))


def _worse(
    both: _Both, growth: tuple[float, float] | None, rows: Collection[FindingDiff], tolerance: float
) -> tuple[Worse, ...]:
    worse: list[Worse] = []
    if any(row.new_severity == "error" and row.trend in ("appeared", "grew") for row in rows):
        worse.append("hazards")
    if growth is not None:
        copies, moved = growth
        allowed = tolerance * (1 + _ROUNDING)
        if copies > allowed * (both.old.cost.copies or 0):
            worse.append("copies")
        if moved > allowed * (both.old.cost.bytes_moved or 0):
            worse.append("bytes_moved")
    return tuple(worse)


def _notes(both: _Both, rows: Collection[FindingDiff], codes: Collection[str]) -> Iterator[str]:
    sides = (("OLD", both.old), ("NEW", both.new))
    if codes:
        yield f"Only some findings are compared, and the figures are theirs: {', '.join(codes)}."
    for name, side in sides:
        if not side.measured:
            yield f"{name} was recorded without strides: its copies are not known, and cannot be compared."
        elif side.left_out and any(row.trend == "unknown" for row in rows):
            yield f"{name} does not list all of its findings: which of them are new cannot be told."
        elif side.cost.bytes_moved is None:
            yield f"{name} has copies whose bytes are not known: bytes are not compared in all."
    for name, side in sides:
        other = both.new if side is both.old else both.old
        if "library" in side.totals.unseen and "library" not in other.totals.unseen:
            yield f"{name} could not see copies inside oneDNN: those of the other are left out of what is compared."
    if names_of(both.old.findings) != names_of(both.new.findings) and both.old.findings and both.new.findings:
        old_names, new_names = names_of(both.old.findings), names_of(both.new.findings)
        yield f"OLD names places by {old_names} and NEW by {new_names}: findings are matched by their operators."
    for name, side in sides:
        other = both.new if side is both.old else both.old
        if not side.totals.steps_found and other.totals.steps_found:
            yield f"{name} has no steps: its figures are those of all that was recorded."
    if not both.same_shares:
        old, new = both.old.totals.share_of, both.new.totals.share_of
        yield f"Shares cannot be compared: OLD gives them of {old}, NEW of {new}."
    if bool(both.old.report.kernels) != bool(both.new.report.kernels):
        name, side = next(each for each in sides if not each[1].report.kernels)
        why = "does not list its kernels" if side.totals.layout_kernels else "holds no kernel of a device"
        yield f"{name} {why}: kernels are not compared one by one."
    before, after = both.old.report.environment, both.new.report.environment
    changed = [f"{key} {before[key]} → {after[key]}" for key in before if before[key] != after.get(key, before[key])]
    if changed:
        yield f"Recorded differently: {', '.join(changed)}."
    for name, side in sides:
        other = both.new if side is both.old else both.old
        yield from (f"{name}: {note}" for note in side.report.notes if note not in other.report.notes)


# ------------------------------------------------------------------------------------------------------------- figures


def _hazards(finding: Finding) -> int:
    return finding.count if finding.severity == "error" else 0


def _figures(cost: Cost) -> _Figures:
    return _Figures(cost.copies, cost.bytes_moved, cost.duration_ns, cost.share)


def _sum(costs: Iterable[Cost]) -> _Figures:
    """Add up; a figure that was not measured in one of them is not known of all."""
    found = [cost for cost in costs if cost != Cost()]
    moved = [cost.bytes_moved for cost in found if cost.bytes_moved is not None]
    times = [cost.duration_ns for cost in found if cost.duration_ns is not None]
    shares = [cost.share for cost in found if cost.share is not None]
    return _Figures(
        copies=sum(cost.copies or 0 for cost in found),
        bytes_moved=sum(moved) if len(moved) == len(found) else None,
        duration_ns=sum(times) if len(times) == len(found) else None,
        share=sum(shares) if len(shares) == len(found) else None,
    )


def _payers_by_place(finding: Finding | None) -> dict[object, list[Payer]]:
    groups: dict[object, list[Payer]] = defaultdict(list)
    for payer in finding.payers if finding else ():
        groups[place(payer.site), payer.op].append(payer)
    return groups


def _delta(old: float | None, new: float | None) -> Delta:
    return Delta(old, new, None if old is None or new is None else _growth(old, new))


def _growth(old: float, new: float) -> float:
    return new - old if _differ(old, new) else 0


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > _ROUNDING * max(abs(one), abs(other))


def _direction(*growths: float) -> Trend:
    grew, shrank = any(growth > 0 for growth in growths), any(growth < 0 for growth in growths)
    if grew and shrank:
        return "changed"
    return "grew" if grew else "shrank" if shrank else "same"


def _size(trend: Trend, cost: CostDelta) -> tuple[float, ...]:
    return _RANK[trend], -abs(cost.bytes_moved.delta or 0), -abs(cost.copies.delta or 0)


def _order(row: FindingDiff) -> tuple[object, ...]:
    is_hazard = "error" in (row.old_severity, row.new_severity)
    rank, *size = _size(row.trend, row.cost)
    return rank, not is_hazard, *size, row.code, row.site.where, row.fingerprint, row.site.line or 0
