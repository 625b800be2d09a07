"""The page of `diff`: what got worse, what got better, and the figures side by side."""

from collections.abc import Iterator

from stridewise.findings import Severity
from stridewise.report.content import Contents
from stridewise.report.diff_words import BETTER, WORSE, cost_text, figures, headline, measured, totals_rows
from stridewise.report.html.cards import card_at, meanings_of
from stridewise.report.html.model import Card, Figure, Page, Stop, Table
from stridewise.results import Diff, FindingDiff

_MOST_PAYERS = 12
_MOST_KERNELS = 60


def page(diff: Diff, contents: Contents) -> Page:
    """Findings that differ as cards, those that got worse first."""
    wrong = "hazards" in diff.worse
    return Page(
        command="stridewise diff",
        verdict=headline(diff),
        tone="wrong" if wrong else "fine" if diff.ok else "look",
        figures=tuple(_figures(diff)),
        cards=tuple(_card(row, number) for number, row in enumerate(diff.listed, start=1)),
        cards_title="What differs",
        tables=tuple(table for table in (_totals(diff), _kernels(diff)) if table.rows),
        notes=diff.notes,
        measured=measured(diff),
        meanings=meanings_of(row.code for row in diff.listed),
    )


def _figures(diff: Diff) -> Iterator[Figure]:
    for label, old, new, difference in list(totals_rows(diff))[:4]:
        yield Figure(f"{old} → {new}" if old != new else new, label, difference if difference != "0" else "as before")


def _card(row: FindingDiff, number: int) -> Card:
    severity: Severity = "note"
    if row.trend in WORSE:
        severity = "error" if row.new_severity == "error" else "warning"
    site = row.site
    was = row.old_site.where if row.old_site is not None and row.old_site.where != site.where else ""
    payers = [payer for payer in row.payers if payer.trend != "same"][:_MOST_PAYERS]
    return card_at(
        site,
        number,
        code=row.code,
        title=row.title,
        severity=severity,
        message=f"{row.trend}: {figures(row)}" + (f"; it was at {was}" if was else ""),
        stops=tuple(
            Stop(
                "payer",
                payer.site.expression or payer.op,
                payer.site.where,
                f"{payer.trend}: {cost_text(payer.trend, payer.cost)}",
            )
            for payer in payers
            if len(row.payers) > 1
        ),
        share=row.cost.share.new if row.trend not in BETTER else row.cost.share.old,
        bytes_moved=abs(row.cost.bytes_moved.delta or 0),
    )


def _totals(diff: Diff) -> Table:
    per = "a step" if diff.old.steps_found or diff.new.steps_found else "this run"
    return Table(
        "Side by side", (per, "OLD", "NEW", "difference"), tuple(totals_rows(diff)), numeric=(1, 2, 3), leading=True
    )


def _kernels(diff: Diff) -> Table:
    rows = [row for row in diff.kernels if row.trend != "same"]
    return Table(
        "Kernels that only change layout",
        ("kernel", "cause", "", "OLD", "NEW"),
        tuple(
            (
                row.name,
                row.cause,
                row.trend,
                *("" if count is None else f"{count:,.3g}" for count in (row.count.old, row.count.new)),
            )
            for row in rows[:_MOST_KERNELS]
        ),
        numeric=(3, 4),
        code=(0,),
        folded=True,
    )
