"""The page of many ranks: how far they are apart, which are unlike the others, and the findings that they share."""

from stridewise.findings import Cost
from stridewise.report.content import Contents
from stridewise.report.fleet_words import FIGURES, Names, apart, cost_text, figure_text, headline, measured, spread_over
from stridewise.report.headline import FINE
from stridewise.report.html.cards import card_at, meanings_of
from stridewise.report.html.model import Card, Figure, Page, Table, Tone
from stridewise.results import Fleet, FleetFinding, FleetRow, numbers

_MOST_ROWS = 512


def page(fleet: Fleet, contents: Contents) -> Page:
    """One page of all ranks; a rank by itself has its own with `stridewise trace FILE`."""
    names = Names(fleet)
    tone: Tone = "wrong" if any(row.errors for row in fleet.rows) else "look"
    return Page(
        command="stridewise trace",
        verdict=headline(fleet),
        tone="fine" if tone == "look" and headline(fleet).startswith(FINE) and not fleet.failures else tone,
        figures=_figures(fleet),
        cards=tuple(_card(finding, number, fleet, names) for number, finding in enumerate(fleet.listed, start=1)),
        tables=tuple(table for table in (_outliers(fleet, names), _failures(fleet), _rows(fleet)) if table.rows),
        notes=tuple(note.text for note in fleet.notes),
        measured=measured(fleet),
        meanings=meanings_of(finding.code for finding in fleet.listed),
    )


def _figures(fleet: Fleet) -> tuple[Figure, ...]:
    files = len(fleet.rows) + len(fleet.failures)
    odd = len({outlier.at for outlier in fleet.outliers})
    found = [Figure(str(files), "file" if files == 1 else "files"), Figure(str(odd), "unlike the others")]
    for figure, label in (("share", "of the time, median"), ("copies", "copies a step, median")):
        spread = fleet.figures.get(figure)  # type: ignore[call-overload]
        if spread is None:
            found.append(Figure("not measured", label))
            continue
        least, most = (figure_text(figure, value) for value in (spread.least, spread.most))  # type: ignore[arg-type]
        between = "the same on all" if least == most else f"{least} to {most}"
        found.append(Figure(figure_text(figure, spread.median), label, between))  # type: ignore[arg-type]
    return tuple(found)


def _card(finding: FleetFinding, number: int, fleet: Fleet, names: Names) -> Card:
    site = finding.site
    return card_at(
        site,
        number,
        code=finding.code,
        title=finding.title,
        severity=finding.severity,
        message=finding.message,
        times=f"on {spread_over(finding, fleet, names)}",
        cost="" if finding.mean == Cost() else cost_text(finding, fleet, names),
        share=finding.most.share,
        bytes_moved=finding.most.bytes_moved or 0,
        advice=finding.advice or "",
        inferred=finding.inferred,
    )


def _outliers(fleet: Fleet, names: Names) -> Table:
    rows = [(names.name(outlier.at), apart(outlier, fleet)) for outlier in fleet.outliers[:_MOST_ROWS]]
    return Table(
        f"{names.noun.capitalize()}s unlike the others", (names.noun, "in what"), tuple(rows), code=(0,), leading=True
    )


def _failures(fleet: Fleet) -> Table:
    rows = [(row.at.file, row.message) for row in fleet.failures[:_MOST_ROWS]]
    return Table("Not read", ("file", "why"), tuple(rows), code=(0,), leading=True)


def _rows(fleet: Fleet) -> Table:
    columns = [figure for figure in FIGURES if figure in fleet.figures]
    odd = {outlier.at for outlier in fleet.outliers}

    def cells(row: FleetRow) -> tuple[str, ...]:
        values = [getattr(row, figure) for figure in columns]
        figures = ["–" if value is None else figure_text(at, value) for at, value in zip(columns, values, strict=True)]
        rank = "" if row.at.rank is None else str(row.at.rank)
        return (rank, row.at.file, *figures, "unlike the others" if row.at in odd else "")

    more = len(fleet.rows) - _MOST_ROWS
    return Table(
        "All files",
        ("rank", "file", *(FIGURES[figure] for figure in columns), ""),
        tuple(map(cells, fleet.rows[:_MOST_ROWS])),
        f"{numbers.count(more, 'more file')}: all of them in --format json." if more > 0 else "",
        numeric=(0, *range(2, 2 + len(columns))),
        code=(1,),
        folded=len(fleet.rows) > 16,
        leading=True,
    )
