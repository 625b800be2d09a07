"""The page of `fix`: what won and its diff, every trial with its interval, and the findings that stay."""

from collections import defaultdict
from collections.abc import Iterator

from stridewise.report import repair_figures as figures
from stridewise.report.content import Contents
from stridewise.report.html.cards import cards, diff_lines, meanings
from stridewise.report.html.model import Figure, Interval, Page, Table, Trial
from stridewise.results import Measurement, Repair, numbers
from stridewise.results import repair as results

_MOST_TRIALS = 200


def page(repair: Repair, contents: Contents) -> Page:
    """Trials stand before findings: what won is what a reader came for."""
    findings = repair.findings
    return Page(
        command="stridewise fix",
        verdict=figures.headline(repair),
        tone="wrong" if any(finding.severity == "error" for finding in findings) else "look" if repair.won else "fine",
        figures=tuple(_figures(repair)),
        trials=tuple(_trial(trial, repair) for trial in _ordered(repair)[:_MOST_TRIALS]),
        diff=tuple(diff_lines(repair.diff)),
        cards=cards(findings, contents=contents, period="a step", share_of="step time", trials=_by_finding(repair)),
        cards_title="Findings of the unchanged program",
        tables=tuple(table for table in (_untried(repair),) if table.rows),
        notes=repair.notes,
        measured=figures.measured(repair),
        meanings=meanings(findings),
    )


def interval(trial: results.Trial, digits: int | None = None) -> Interval | None:
    """Its speed over the unchanged program, as the bar shows it; None if it was not timed."""
    text = figures.faster(trial, digits=digits)
    if text is None or not trial.ratio or not trial.low or not trial.high:
        return None
    return Interval(1 / trial.high, 1 / trial.ratio, 1 / trial.low, figures.verdict(trial), text)


def _figures(repair: Repair) -> Iterator[Figure]:
    together: Measurement | None = repair.together or (repair.won[0] if len(repair.won) == 1 else None)
    speed = figures.speed(together) if together is not None else None
    yield Figure(speed or "–", "as fast with all edits" if speed else "no edit makes it faster")
    yield Figure(str(len(repair.won)), "edit wins" if len(repair.won) == 1 else "edits win")
    yield Figure(str(len(repair.trials)), "edit tried" if len(repair.trials) == 1 else "edits tried")
    if together is not None and together.copies_before is not None and together.copies_after is not None:
        before, after = (numbers.figure(count) for count in (together.copies_before, together.copies_after))
        yield Figure(f"{before} → {after}", "copies a step")
    else:
        yield Figure("–" if repair.step_ns is None else numbers.duration(repair.step_ns), "a step takes")


def _ordered(repair: Repair) -> list[results.Trial]:
    order = ("won", "no difference", "lost", "refused")
    return sorted(repair.trials, key=lambda trial: (not trial.kept, order.index(trial.verdict)))


def _trial(trial: results.Trial, repair: Repair) -> Trial:
    facts = {
        "speed": figures.faster(trial, repair.confidence),
        "copies": figures.copies(trial),
        "memory": figures.memory(trial),
        "kept": figures.kept(trial),
        "results": figures.results(trial),
        "forecast": figures.forecast(trial),
        "layout": "; ".join(trial.layouts),
        "mends": ", ".join(figures.titles(trial, repair)),
        "note": trial.reason,
        "often said": trial.answers if trial.kept else None,
    }
    return Trial(
        what=trial.what,
        place=figures.place(trial.site),
        verdict=figures.verdict(trial),
        won=trial.kept,
        interval=interval(trial, figures.decimals(*repair.trials)),
        facts=tuple((name, text) for name, text in facts.items() if text),
    )


def _by_finding(repair: Repair) -> dict[str, tuple[Interval, ...]]:
    digits = figures.decimals(*repair.trials)
    found: defaultdict[str, list[Interval]] = defaultdict(list)
    for trial in repair.trials:
        if (shown := interval(trial, digits)) is not None:
            for fingerprint in trial.findings:
                found[fingerprint].append(shown)
    return {fingerprint: tuple(intervals) for fingerprint, intervals in found.items()}


def _untried(repair: Repair) -> Table:
    rows = [(row.what, row.site.where) for row in repair.untried[:_MOST_TRIALS]]
    return Table("Not tried", ("edit", "where"), tuple(rows), code=(1,), folded=True)
