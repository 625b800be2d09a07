"""What differs between two reports, in words and figures."""

from collections.abc import Callable, Iterator, Sequence

from stridewise.results import CostDelta, Delta, Diff, FindingDiff, Trend, numbers

WORSE: tuple[Trend, ...] = ("appeared", "grew", "changed")
BETTER: tuple[Trend, ...] = ("shrank", "went")


def headline(diff: Diff) -> str:
    """Say in one sentence whether layout got worse, and by what."""
    totals, cost = diff.totals, diff.totals.cost
    if not diff.ok:
        return f"Layout got worse: {_changes(diff, grown=True)}."
    if totals.trend == "unknown":
        sides = [side for side, copies in (("OLD", cost.copies.old), ("NEW", cost.copies.new)) if copies is None]
        were = "were" if len(sides) > 1 else "was"
        return f"Whether layout got worse cannot be told: {' and '.join(sides)} {were} recorded without strides."
    if totals.trend in WORSE:
        return f"Nothing got worse beyond the tolerance of {numbers.share(diff.tolerance)}: {_changes(diff)}."
    if totals.trend in BETTER or _hazards(diff, BETTER):
        return f"Nothing got worse: {_changes(diff)}."
    if not cost.copies.new:
        return "Nothing got worse: no tensor is copied because of its layout, as before."
    copies = numbers.count(cost.copies.new, "copy", "copies")
    moved = "" if cost.bytes_moved.new is None else f" and {numbers.byte_count(cost.bytes_moved.new)}"
    return f"Nothing got worse: {copies}{moved} {_per(diff)}, as before{' in all' if diff.listed else ''}."


def _changes(diff: Diff, *, grown: bool = False) -> str:
    """Name the differences; only those that are too large, if asked."""
    copies, moved = diff.totals.cost.copies, diff.totals.cost.bytes_moved
    parts = []
    if wrong := _hazards(diff, ("appeared", "grew")):
        parts.append(f"results are wrong in {numbers.count(wrong, 'new place')}")
    if (right := _hazards(diff, BETTER)) and not grown:
        parts.append(f"results are no longer wrong in {numbers.count(right, 'place')}")
    if copies.delta and (not grown or "copies" in diff.worse):
        change = numbers.count(abs(copies.delta), "copy", "copies")
        change_of = pair(copies, numbers.figure, exact_figure)
        parts.append(f"{change} {'more' if copies.delta > 0 else 'fewer'} {_per(diff)} ({change_of})")
    if moved.delta and (not grown or "bytes_moved" in diff.worse):
        moved_of = pair(moved, numbers.byte_count, _exact_bytes)
        more = "more" if moved.delta > 0 else "less"
        per = "" if any("cop" in part for part in parts) else f" {_per(diff)}"
        parts.append(f"{numbers.byte_count(abs(moved.delta))} {more} to move{per} ({moved_of})")
    return ", and ".join(parts)


def _hazards(diff: Diff, trends: Sequence[Trend]) -> int:
    return sum("error" in (row.old_severity, row.new_severity) and row.trend in trends for row in diff.findings)


def _per(diff: Diff) -> str:
    return "a step" if diff.old.steps_found or diff.new.steps_found else "in this run"


def totals_rows(diff: Diff) -> Iterator[tuple[str, str, str, str]]:
    """What is compared, both figures and the difference; figures that are 0 on both sides are left out."""
    totals, cost = diff.totals, diff.totals.cost
    rows: list[tuple[str, Delta, Callable[[float], str], Callable[[float], str] | None]] = [
        ("wrong results", totals.hazards, numbers.figure, None),
        ("copies", cost.copies, numbers.figure, exact_figure),
        ("bytes moved", cost.bytes_moved, numbers.byte_count, _exact_bytes),
        ("time in copies", cost.duration_ns, numbers.duration, None),
        ("share", cost.share, numbers.share, _exact_share),
        ("layout kernels", totals.layout_kernels, numbers.figure, exact_figure),
        ("wall time", totals.step_ns, numbers.duration, None),
    ]
    for label, delta, show, exact in rows:
        if (delta.old or delta.new) or label == "copies":
            old, new = _shown(delta, show, exact)
            yield label, old, new, "" if delta.delta is None else _signed(delta.delta, show)


def measured(diff: Diff) -> str:
    """What the figures were measured on."""
    same = sum(row.trend == "same" for row in diff.findings)
    kept = f"{numbers.count(same, 'finding')} {'is' if same == 1 else 'are'} as before. " if same else ""
    sides = [numbers.count(side.steps, "step") if side.steps_found else "a whole run" for side in (diff.old, diff.new)]
    measured = f"Both are {sides[0]}" if sides[0] == sides[1] else f"OLD is {sides[0]}, NEW {sides[1]}"
    return f"{kept}{measured}. Times differ from run to run: they are shown, not judged."


def figures(row: FindingDiff) -> str:
    """What is different about a finding: its severity, cost or count."""
    parts = []
    if row.old_severity != row.new_severity and row.old_severity and row.new_severity:
        parts.append(f"{row.old_severity} → {row.new_severity}")
    if row.cost.copies.old or row.cost.copies.new:
        parts.append(cost_text(row.trend, row.cost))
    elif row.old_severity is None or row.new_severity is None:
        parts.append(numbers.count(row.count.new or row.count.old or 0, "time"))
    elif row.count.delta:
        parts.append(f"{both(row.count, numbers.figure)} times")
    return ", ".join(parts)


def cost_text(trend: Trend, cost: CostDelta) -> str:
    """Both figures of a cost; one where there is one only."""
    if trend == "unknown":
        side, other = ("OLD", "NEW") if cost.copies.new is None else ("NEW", "OLD")
        one = CostDelta(*(_only(delta, side) for delta in _deltas(cost)))
        return f"{cost_text('same', one)} in {side}, not known in {other}"
    if trend in ("appeared", "went"):
        cost = CostDelta(*(_only(delta, "NEW" if trend == "appeared" else "OLD") for delta in _deltas(cost)))
    copies, moved, time, share = _deltas(cost)
    count = both(copies, numbers.figure, exact_figure)
    parts = [f"{count} {'copy' if count == '1' else 'copies'}"]
    if moved.old or moved.new:
        parts.append(both(moved, numbers.byte_count, _exact_bytes))
    if time.old is not None or time.new is not None:
        parts.append(both(time, numbers.duration))
    if share.old is not None or share.new is not None:
        parts.append(both(share, numbers.share, _exact_share))
    return ", ".join(parts)


def _deltas(cost: CostDelta) -> tuple[Delta, Delta, Delta, Delta]:
    return cost.copies, cost.bytes_moved, cost.duration_ns, cost.share


def _only(delta: Delta, side: str) -> Delta:
    figure = delta.new if side == "NEW" else delta.old
    return Delta(figure, figure, 0)


def both(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None = None) -> str:
    """Both figures with an arrow; one where they read alike."""
    old, new = _shown(delta, show, exact)
    return old if old == new else f"{old} → {new}"


def pair(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None = None) -> str:
    """Both figures with an arrow."""
    return " → ".join(_shown(delta, show, exact))


def _shown(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None) -> tuple[str, str]:
    """Write both figures, with as many digits as it takes to tell them apart."""
    old, new = ("not known" if figure is None else show(figure) for figure in (delta.old, delta.new))
    if old == new and delta.delta and delta.old is not None and delta.new is not None and exact:
        old, new = exact(delta.old), exact(delta.new)
    return old, new


def _signed(difference: float, show: Callable[[float], str]) -> str:
    if not difference:
        return "0"
    return f"{'+' if difference > 0 else '-'}{show(abs(difference)).removeprefix('< ')}"


def exact_figure(value: float) -> str:
    """A number with as many digits as tell it from another."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _exact_bytes(value: float) -> str:
    return f"{value:,.0f} B"


def _exact_share(value: float) -> str:
    return f"{exact_figure(100 * value)} %"
