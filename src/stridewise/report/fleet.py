"""Many files: a sentence about all, the files unlike the others, a row for each, and the findings that they share."""

from collections.abc import Iterator, Sequence
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Cost, Severity
from stridewise.report import html, json, junit
from stridewise.report.console import write
from stridewise.report.fleet_words import (
    FIGURES,
    Names,
    apart,
    cost_text,
    figure_text,
    headline,
    measured,
    of,
    share_of,
    spread_over,
)
from stridewise.report.github import annotation
from stridewise.report.headline import FINE
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import Fleet, FleetFigure, FleetFile, FleetFinding, FleetRow, Outlier, numbers

FleetFormat = Literal["text", "json", "github", "junit", "html"]

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}

_LABEL = 8
_CELL = 11
_NAME = 16
_MOST_ROWS = 32
_FIRST_ROWS = 4
_MOST_FINDINGS = 40
_MOST_FILES = 8
_MOST_FAILURES = 20

_DISPENSABLE: tuple[FleetFigure, ...] = ("duration_ns", "bytes_moved", "layout_kernels_share")
"""What a narrow terminal does without, the first first."""


def render(
    fleet: Fleet, out: TextIO, *, format: FleetFormat = "text", color: bool | None = None, width: int | None = None
) -> None:
    """Write it as text of at most 100 columns, as JSON with all rows, or as CI systems read it."""
    if format == "json":
        out.write(json.dumps(fleet))
    elif format == "html":
        html.render(fleet, out)
    elif format == "github":
        out.writelines(_annotations(fleet))
    elif format == "junit":
        notes = (note.text for note in fleet.notes)
        out.write(junit.report("stridewise", _cases(fleet), headline(fleet), notes))
    else:
        write(lambda columns: _lines(fleet, columns), out, color=color, width=width)


# ------------------------------------------------------------------------------------------------------------ the text


def _lines(fleet: Fleet, width: int) -> Iterator[Text]:
    names = Names(fleet)
    sentence = headline(fleet)
    yield from hang("", quote(sentence, "bold green" if sentence.startswith(FINE) else "bold"), width)
    if fleet.failures:
        yield from _failures(fleet, width)
    if fleet.outliers:
        yield Text()
        yield from _outliers(fleet, names, width)
    yield Text()
    yield from _table(fleet, width)
    for finding in fleet.listed[:_MOST_FINDINGS]:
        yield Text()
        yield from _finding(finding, fleet, names, width)
    if len(fleet.listed) > _MOST_FINDINGS:
        rest = numbers.count(len(fleet.listed) - _MOST_FINDINGS, "more finding")
        yield from hang("", Text(f"… {rest}: all of them in --format json"), width)
    small = len(fleet.findings) - len(fleet.listed)
    if small and fleet.listed:
        yield Text()
        each = f" below {numbers.share(fleet.min_share)} of {share_of(fleet)} each" if fleet.min_share else ""
        yield from hang("", Text(f"{numbers.count(small, 'more finding')}{each}."), width)
    for note in fleet.notes:
        yield Text()
        where = "" if note.files >= len(fleet.rows) else f" ({of(note.files, len(fleet.rows), names.noun)})"
        yield from hang("note: ", quote(note.text + where), width, "bold cyan")
    yield Text()
    yield from hang("", Text(measured(fleet), "dim"), width)


def _failures(fleet: Fleet, width: int) -> Iterator[Text]:
    files = len(fleet.rows) + len(fleet.failures)
    yield Text()
    yield Text(f"{of(len(fleet.failures), files, 'file')} could not be read:", "bold red")
    for failed in fleet.failures[:_MOST_FAILURES]:
        message = failed.message if failed.at.file in failed.message else f"{failed.at.file}: {failed.message}"
        yield from hang("  ", quote(message), width)
    if len(fleet.failures) > _MOST_FAILURES:
        yield Text(f"  … {len(fleet.failures) - _MOST_FAILURES} more: all of them in --format json")


def _outliers(fleet: Fleet, names: "Names", width: int) -> Iterator[Text]:
    """One line for each file that differs, with what it differs in."""
    by_file: dict[FleetFile, list[Outlier]] = {}
    for outlier in fleet.outliers:
        by_file.setdefault(outlier.at, []).append(outlier)
    yield Text(f"{of(len(by_file), len(fleet.rows), names.noun)} unlike the others:", "bold yellow")
    for at, several in list(by_file.items())[:_MOST_ROWS]:
        figures = ", ".join(apart(outlier, fleet) for outlier in several)
        yield from hang("  ", Text.assemble((names.name(at), "bold"), f": {figures}"), width)
    if len(by_file) > _MOST_ROWS:
        yield Text(f"  … {len(by_file) - _MOST_ROWS} more: all of them in --format json")


def _table(fleet: Fleet, width: int) -> Iterator[Text]:
    """A row a file; of many only those unlike the others, and what lies between."""
    columns = [figure for figure in FIGURES if figure in fleet.figures]
    for figure in _DISPENSABLE:
        if figure in columns and width - 2 - _CELL * len(columns) < _NAME:
            columns.remove(figure)
    odd = {outlier.at for outlier in fleet.outliers}
    rows = list(fleet.rows)
    if len(rows) > _MOST_ROWS:
        rows = [row for row in rows if row.at in odd][:_MOST_ROWS] or rows[:_FIRST_ROWS]
    folder = _common_folder([row.at.file for row in fleet.rows])
    labels = {row.at: _label(row.at, folder) for row in rows}
    room = max(_NAME, width - 2 - _CELL * len(columns))
    cells = min(room, max([len("median"), *map(cell_len, labels.values())]))
    yield Text("  " + " " * cells + "".join(f"{FIGURES[figure]:>{_CELL}}" for figure in columns), "bold")
    for row in rows:
        mark = "> " if row.at in odd else "  "
        shown = column(shorten_left(labels[row.at], cells), cells)
        yield Text(mark + shown + _cells(row, columns), "bold" if row.at in odd else "")
    if len(rows) < len(fleet.rows):
        yield Text(f"  … {len(fleet.rows) - len(rows)} more: all of them in --format json")
    spreads = [
        [figure_text(figure, getattr(fleet.figures[figure], title)) for figure in columns]
        for title in ("least", "median", "most")
    ]
    if spreads[0] != spreads[2]:
        for title, values in zip(("least", "median", "most"), spreads, strict=True):
            yield Text("  " + column(title, cells) + "".join(f"{value:>{_CELL}}" for value in values), "dim")
    if "layout_kernels_share" in columns:
        yield Text("  kernels: those that only change layout, of kernel-busy time", "dim")


def _label(at: FleetFile, folder: str) -> str:
    return f"{'' if at.rank is None else at.rank:>4}  {one_line(at.file.removeprefix(folder))}"


def _common_folder(files: Sequence[str]) -> str:
    """What the names of several files begin with, up to a `/`."""
    if len(files) < 2:
        return ""
    first, last = min(files), max(files)
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first.rfind("/", 0, same) + 1]


def _cells(row: FleetRow, columns: Sequence[FleetFigure]) -> str:
    values = [getattr(row, figure) for figure in columns]
    return "".join(
        f"{'–' if value is None else figure_text(figure, value):>{_CELL}}"
        for figure, value in zip(columns, values, strict=True)
    )


def _finding(finding: FleetFinding, fleet: Fleet, names: "Names", width: int) -> Iterator[Text]:
    style = _STYLES[finding.severity]
    title = Text.assemble(
        (f"{finding.severity}[{one_line(finding.code)}]", style), (f" {one_line(finding.title)}", "bold")
    )
    title.append(f", on {spread_over(finding, fleet, names)}")
    yield from hang("", title, width)
    yield from hang("  ", quote(finding.message), width)
    site = finding.site
    where = [one_line(site.where)] if site.file else []
    where += [f"in {one_line(site.function)}"] if site.function else []
    where += [f"module {one_line(site.module)}"] if site.module else []
    if where:
        yield from hang("  --> ", Text(", ".join(where)), width, "blue")
    if site.expression and site.file:
        yield Text(shorten(f"      {one_line(site.expression)}", width))
    if finding.mean != Cost():
        yield from hang("  cost".ljust(_LABEL), Text(cost_text(finding, fleet, names)), width, "bold")
    if finding.advice:
        yield from hang("  fix".ljust(_LABEL), quote(finding.advice, "green"), width, "bold")


# ----------------------------------------------------------------------------------------------------------- the words


# ------------------------------------------------------------------------------------------------------ for CI systems


def _annotations(fleet: Fleet) -> Iterator[str]:
    names = Names(fleet)
    for finding in fleet.findings:
        message = _sentences(finding, fleet, names)
        yield annotation(finding.severity, f"{finding.code} {finding.title}", message, finding.site)
    for failed in fleet.failures:
        yield annotation("warning", "stridewise", f"{failed.at.file} could not be read: {failed.message}")
    for outlier in fleet.outliers:
        yield annotation("note", "stridewise", f"{names.name(outlier.at)}: {apart(outlier, fleet)}")
    for text in (headline(fleet), *(note.text for note in fleet.notes)):
        yield annotation("note", "stridewise", text)


def _cases(fleet: Fleet) -> Iterator[junit.Case]:
    names = Names(fleet)
    for failed in fleet.failures:
        yield junit.Case(failed.at.file, "can be read", "error", "unread", failed.message, failed.message)
    for finding in fleet.findings:
        site = finding.site
        yield junit.Case(
            site.file or "stridewise",
            junit.case_name(finding.code, finding.title, site),
            "passed" if finding.severity == "note" else "failure",
            finding.code,
            finding.message,
            _sentences(finding, fleet, names),
            site.file,
            site.line,
        )


def _sentences(finding: FleetFinding, fleet: Fleet, names: "Names") -> str:
    cost = "" if finding.mean == Cost() else f"Cost: {cost_text(finding, fleet, names)}"
    on = f"On {spread_over(finding, fleet, names)}."
    return "\n".join(filter(None, (finding.message, on, cost, finding.advice)))
