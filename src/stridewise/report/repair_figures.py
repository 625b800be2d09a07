"""What a trial came to, in words.

Times are shown as speed: at 1.31x a step takes 1/1.31 of the time. JSON has the ratio of the times itself.
"""

from collections.abc import Sequence

from stridewise.findings import Cost, Finding, Site
from stridewise.measure.statistics import WIN
from stridewise.report.source import character_region
from stridewise.report.text import one_line
from stridewise.results import numbers
from stridewise.results.repair import Measurement, Repair, Trial

_WIDE = 1.5
"""From here on, an interval's ends over each other, what stands between them is no figure."""
_EDGES = (WIN, 1 / WIN)
"""Speeds that part what wins and what loses from what does neither."""
_MOST_DECIMALS = 6
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def headline(repair: Repair) -> str:
    """Say in a sentence or two what the edits win, or that none does."""
    together = _together(repair)
    question = "channels_last" if asks_channels_last(repair) else repair.only[0] if len(repair.only) == 1 else None
    if question is not None:
        sentence = f"Would {one_line(question)} help? {_answer(repair)}"
    else:
        sentence = _won(repair) if repair.won else _nothing_won(repair)
    compared = "" if together is None else _compared(together)
    return f"{'Interrupted. ' if repair.interrupted else ''}{sentence}{compared}"


def asks_channels_last(repair: Repair) -> bool:
    """The question is whether channels_last helps: nothing else was to be tried."""
    return bool(repair.only) and all(name.replace("-", "_").startswith("channels_last") for name in repair.only)


def decimals(*rows: Measurement) -> int:
    """How many decimals a figure has, or all in one table: as many as it takes to see each verdict in its interval."""
    return max((_decimals_of(row) for row in rows if row.ratio), default=2)


def speed(measured: Measurement, digits: int | None = None) -> str | None:
    """`1.31x`; with a wide interval `≥1.07x` for a win and `≤0.93x` for a loss; None if it was not timed."""
    if not measured.ratio:
        return None
    mark = {"at least ": "≥", "at most ": "≤", "": ""}[_bound(measured)]
    return f"{mark}{_figure(measured):.{decimals(measured) if digits is None else digits}f}x"


def interval(measured: Measurement, digits: int | None = None) -> str | None:
    """`1.27 to 1.35`, of the speed."""
    if not (measured.ratio and measured.low and measured.high):
        return None
    digits = decimals(measured) if digits is None else digits
    return f"{1 / measured.high:.{digits}f} to {1 / measured.low:.{digits}f}"


def faster(measured: Measurement, confidence: float | None = None, digits: int | None = None) -> str | None:
    """`1.31x faster (1.27 to 1.35)`, `0.91x as fast (…)`, `1.004x (…)`; with a confidence also what the range is.

    With a wide interval it is `at least 1.07x faster`: the end of the interval that the verdict stands on.
    """
    if not measured.ratio:
        return None
    digits = decimals(measured) if digits is None else digits
    bound, between = _bound(measured), interval(measured, digits)
    what = "interval " if bound else ""
    if confidence is not None:
        what = f"{numbers.share(confidence)} interval "
    words = " faster" if is_faster(measured) else " as fast" if measured.low is not None and measured.low > 1 else ""
    why = "the machine was busy: " if bound else ""
    return f"{bound}{_figure(measured):.{digits}f}x{words}" + (f" ({why}{what}{between})" if between else "")


def copies(measured: Measurement) -> str | None:
    """`16 → 2 a step, moving 38 MB → 4 MB`; None if they were not counted."""
    before, after = measured.copies_before, measured.copies_after
    if before is None or after is None:
        return None
    if before == after:
        return f"{numbers.figure(before)} a step, as before" if before else "none, as before"
    change = f"{numbers.figure(before)} → {numbers.figure(after)} a step"
    old, new = (_moved(tax) for tax in (measured.tax_before, measured.tax_after))
    if old and new:
        return f"{change}, moving {old} → {new}"
    return f"{change}, {'which moved' if old else 'moving'} {old or new}" if old or new else change


def memory(measured: Measurement) -> str | None:
    """`81 MB → 64 MB`; None if it was not measured."""
    before, after = measured.peak_before, measured.peak_after
    if before is None or after is None:
        return None
    old, new = numbers.byte_count(before), numbers.byte_count(after)
    return f"{old}, as before" if old == new else f"{old} → {new}"


def kept(measured: Measurement) -> str | None:
    """What the results of a step keep, `13 MB → 0.1 MB`; None if that is as before."""
    before, after = measured.kept_before, measured.kept_after
    if before is None or after is None:
        return None
    old, new = numbers.byte_count(before), numbers.byte_count(after)
    return None if old == new else f"{old} → {new} in what a step returns"


def results(measured: Measurement) -> str | None:
    """What the results do: `are the same, bit for bit`, `agree within 3.1e-7 …`; None if nobody looked at them.

    With what could not be compared behind it.
    """
    found = _agreement(measured)
    if measured.equal is None or not measured.unseen:
        return found
    return f"{found}; not compared: {listed([one_line(name) for name in measured.unseen])}"


def forecast(trial: Trial) -> str | None:
    """What the plan of the whole step had forecast, `1.06x`, and what came instead if that is much else: all speeds."""
    if not trial.forecast:
        return None
    figure = f"{1 / trial.forecast:.{_rounded(1 / trial.forecast)}f}x"
    return f"{figure}, {one_line(trial.forecast_off)}" if trial.forecast_off else figure


def gains(measured: Measurement, step_ns: float | None = None) -> str:
    """`9.10 ms → 6.94 ms, 14 of 16 copies gone, peak memory 81 MB → 64 MB`: what changed of it."""
    parts = []
    if step_ns is not None and measured.ratio and not _bound(measured):
        parts.append(_durations(step_ns, step_ns * measured.ratio))
    before, after = measured.copies_before, measured.copies_after
    if before is not None and after is not None and before != after:
        change = numbers.figure(abs(before - after))
        of = f"{change} of {numbers.count(before, 'copy', 'copies')} gone"
        more = f"{numbers.count(after - before, 'more copy', 'more copies')}"
        parts.append(of if after < before else more)
    peak = memory(measured)
    if peak is not None and not peak.endswith("as before"):
        parts.append(f"peak memory {peak}")
    if not is_faster(measured) and (held := kept(measured)) is not None:
        parts.append(held)
    return ", ".join(parts)


def is_faster(measured: Measurement) -> bool:
    """The interval lies wholly on the fast side: the win is one of time, not only of memory."""
    return measured.high is not None and measured.high < 1


def verdict(trial: Trial) -> str:
    """The verdict as people read it: one that won and is not kept did so alone, and a wide interval tells nothing."""
    if trial.verdict == "won" and not trial.kept:
        return "won alone"
    return "unclear" if _is_unclear(trial) else trial.verdict


def titles(trial: Trial, repair: Repair) -> list[str]:
    """Name the findings that an edit is to mend: `SW101 strided-stream`."""
    found = [finding for finding in repair.findings if finding.fingerprint in trial.findings]
    return list(dict.fromkeys(one_line(f"{finding.code} {finding.title}") for finding in found))


def mended(repair: Repair) -> tuple[Finding, ...]:
    """The findings of the unchanged program that what is kept is to mend."""
    names = {fingerprint for trial in repair.won for fingerprint in trial.findings}
    made = [trial.edits for trial in repair.won if trial.edits]  # what only its trial could tell has its edits
    return tuple(row for row in repair.findings if row.fingerprint in names or row.edits in made)


def listed(names: Sequence[str]) -> str:
    """Name three, and say how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def place(site: Site) -> str:
    """Where an edit goes, with its function and module."""
    region = character_region(site)
    where = [one_line(site.where) + (f":{region[0]}" if region and site.file else "")]
    where += [f"in {one_line(site.function)}"] if site.function else []
    where += [f"module {one_line(site.module)}"] if site.module else []
    return ", ".join(where)


def measured(repair: Repair) -> str:
    """What was timed, where, and what counts as equal."""
    pairs = [trial.pairs for trial in repair.trials if trial.pairs]
    step = f" of {numbers.duration(repair.step_ns)}" if repair.step_ns is not None else ""
    most = f"{min(pairs)} to {max(pairs)}" if pairs and min(pairs) < max(pairs) else str(max(pairs, default=0))
    timed = f"{most} pairs of steps{step}, with an edit and without it in turn" if pairs else "no step was timed"
    environment = "".join(f", {one_line(key)} {one_line(value)}" for key, value in repair.environment.items())
    equal, by_dtype, _ = one_line(repair.tolerance).partition(": ")
    more = " that goes by dtype (docs/reference/fix.md)" if by_dtype else ""
    return f"Measured: {timed}{environment}. Counts as equal: {equal}{more}."


# ------------------------------------------------------------------------------------------------------- the sentences


def _won(repair: Repair) -> str:
    won = repair.won
    edits = numbers.count(len(won), "edit")
    measured = _together(repair)
    if measured is None:
        best = min(won, key=lambda trial: trial.ratio or 1)
        alone = f" (the best of them {_bound(best)}{_figure(best):.{decimals(best)}f}x)" if best.ratio else ""
        return f"{edits} make a step faster{alone}, each by itself; all at once they were not tried."
    s = "s" if len(won) == 1 else ""
    if is_faster(measured):
        return _with_gains(f"{edits} make{s} a step {faster(measured, repair.confidence)}", measured, repair.step_ns)
    return _with_gains(f"{edits} save{s} memory, and a step takes no longer{_level(measured, repair)}", measured)


def _together(repair: Repair) -> Measurement | None:
    """All that won, at once; None if nothing did, or it was not tried."""
    return repair.together or (repair.won[0] if len(repair.won) == 1 else None)


def _with_gains(sentence: str, measured: Measurement, step_ns: float | None = None) -> str:
    gained = gains(measured, step_ns)
    return f"{sentence}{f': {gained}' if gained else ''}."


def _level(measured: Measurement, repair: Repair) -> str:
    """What stands behind `no longer`: ` (1.002x, 95 % interval 0.994 to 1.009)`."""
    figure, between = speed(measured), interval(measured)
    if figure is None:
        return ""
    return f" ({figure}, {numbers.share(repair.confidence)} interval {between})" if between else f" ({figure})"


def _compared(measured: Measurement) -> str:
    found = _agreement(measured)
    part = ", as far as they could be compared" if measured.equal and measured.unseen else ""
    return f" Results {found}{part}." if found else ""


def _agreement(measured: Measurement) -> str | None:
    if measured.equal is None:
        return "were not compared: nothing that a step returns can be" if measured.unseen else None
    if measured.difference is None:
        return "agree within the tolerance" if measured.equal else "differ"
    if measured.equal and measured.difference == 0:
        return "are the same" if measured.unseen else "are the same, bit for bit"
    verb = "agree within" if measured.equal else "differ by"
    return f"{verb} {_power(measured.difference)} of their largest magnitude"


def _nothing_won(repair: Repair) -> str:
    trials, waiting = len(repair.trials), len(repair.untried)
    if not trials:
        if repair.interrupted and not waiting:
            return "Nothing was tried."
        if waiting:
            return f"None of {numbers.count(waiting, 'edit')} was tried."
        return f"Nothing to try: {_no_candidates(repair)}."
    beginning = "Nothing won so far" if waiting else "Nothing to win"
    refused = sum(trial.verdict == "refused" for trial in repair.trials)
    if refused == trials:
        all_of = "both" if trials == 2 else f"all {trials}"
        which = "the only edit that was tried is" if trials == 1 else f"{all_of} edits that were tried are"
        return f"{beginning}: {which} refused."
    if any(trial.verdict == "won" for trial in repair.trials):
        return f"{beginning}: what won by itself did not hold when all of it was tried at once."
    clearly = "clearly " if any(map(_is_unclear, repair.trials)) else ""
    if trials == 1:
        return f"{beginning}: 1 edit was tried, and it makes no step {clearly}faster."
    left_out = f", {numbers.figure(refused)} of them refused" if refused else ""
    return f"{beginning}: {trials} edits were tried{left_out}, and none makes a step {clearly}faster."


def _is_unclear(trial: Trial) -> bool:
    """It may be a win, or a loss, for all that its interval says."""
    if trial.low is None or trial.high is None or trial.verdict != "no difference":
        return False
    return trial.low < WIN or trial.high > 1 / WIN


def _no_candidates(repair: Repair) -> str:
    costly = sum(finding.severity != "note" for finding in repair.findings)
    if not costly:
        return "layout costs this program nothing that an edit could save"
    if costly == 1:
        return "stridewise knows no edit for the one finding that costs something"
    return f"stridewise knows no edit for any of the {numbers.figure(costly)} findings that cost something"


def _answer(repair: Repair) -> str:
    """Answer the one question that was asked."""
    measured = _together(repair)
    if repair.won and measured is not None:
        if is_faster(measured):
            return _with_gains(
                f"Yes: with it a step is {faster(measured, repair.confidence)}", measured, repair.step_ns
            )
        return _with_gains(f"Yes: it saves memory, and a step takes no longer{_level(measured, repair)}", measured)
    if repair.won:
        return f"Yes: {_won(repair)}"
    if not repair.trials:
        return "It was not tried." if repair.untried else "It has no place in this program: there is nothing to try."
    timed = [trial for trial in repair.trials if trial.ratio is not None and trial.verdict != "refused"]
    if not timed:
        return f"No, it can't be used here: {one_line(repair.trials[0].reason or 'it could not be timed')}."
    best = min(timed, key=lambda trial: trial.ratio or 1)
    if best.verdict == "lost":
        return _with_gains(f"No: with it a step is {faster(best, repair.confidence)}", best, repair.step_ns)
    if best.verdict == "won":
        return "No: what won by itself did not hold when all of it was tried at once."
    if _is_unclear(best):
        return f"It did not become clear{_level(best, repair)}: more time may tell."
    return _with_gains(f"No: a step takes as long with it{_level(best, repair)}", best)


def _moved(tax: Cost | None) -> str:
    return "" if tax is None or not tax.bytes_moved else numbers.byte_count(tax.bytes_moved)


def _bound(measured: Measurement) -> str:
    """`at least `, `at most `: what can be said of a speed that was clear, but not to a figure; else nothing."""
    if measured.low is None or measured.high is None or not measured.low or measured.high / measured.low <= _WIDE:
        return ""
    return "at least " if measured.high < 1 else "at most " if measured.low > 1 else ""


def _figure(measured: Measurement) -> float:
    """The speed that stands for it: what was measured, or the bound."""
    ratio = {"at least ": measured.high, "at most ": measured.low, "": measured.ratio}[_bound(measured)]
    assert ratio
    return 1 / ratio


def _decimals_of(measured: Measurement) -> int:
    ends = [1 / end for end in (measured.low, measured.high) if end]
    digits = _rounded(_figure(measured))
    while digits < _MOST_DECIMALS and not all(_keeps_its_side(end, digits) for end in ends):
        digits += 1
    return digits


def _keeps_its_side(speed: float, digits: int) -> bool:
    """Rounded, it lies on the same side of what a win and a loss begin at: 1.0102 wins, and 1.01 would not."""
    shown = float(f"{speed:.{digits}f}")
    return all((shown > edge, shown < edge) == (speed > edge, speed < edge) for edge in _EDGES)


def _rounded(speed: float) -> int:
    """Two, but three within 2 % of 1, and none from 10 on: what a ratio of times is good for."""
    return 0 if speed >= 10 else 3 if abs(speed - 1) < 0.02 else 2


def _durations(before: float, after: float) -> str:
    """`10.0 ms → 8.55 ms`: with a digit more than elsewhere, so that the two have the ratio that stands beside them."""
    size, unit = next(row for row in _UNITS if max(before, after) >= row[0] or row[1] == "ns")
    return " → ".join(f"{_three_digits(time / size)} {unit}" for time in (before, after))


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _power(value: float) -> str:
    """`3.1e-7`, `0.04`: a difference may be of any size."""
    if 0.001 <= value < 1000:
        return numbers.figure(value)
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}" if exponent else digits
