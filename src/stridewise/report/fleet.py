"""Many files: a sentence about all, the files unlike the others, a row for each, and the findings that they share."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Cost, Severity
from stridewise.report import html, json, junit, numbers
from stridewise.report.console import write
from stridewise.report.github import annotation
from stridewise.report.headline import FINE, NOTICEABLE
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import Fleet, FleetFigure, FleetFile, FleetFinding, FleetRow, Outlier, Spread

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

FIGURES: dict[FleetFigure, str] = {
    "step_ns": "step",
    "copies": "copies",
    "bytes_moved": "moved",
    "duration_ns": "in copies",
    "share": "share",
    "layout_kernels_share": "kernels",
}
"""Columns of the table, in order."""
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


def headline(fleet: Fleet) -> str:
    """Say in one sentence what layout costs on all ranks, and how far they are apart."""
    names = Names(fleet)
    wrong = sum(bool(row.errors) for row in fleet.rows)
    if wrong:
        return f"Layout makes results wrong on {_of(wrong, len(fleet.rows), names.noun)}."
    share, copies = fleet.figures.get("share"), fleet.figures.get("copies")
    if copies is None:
        return f"{_kernels_cost(fleet.figures.get('layout_kernels_share'), len(fleet.rows), names)}."
    whole = _all(copies.measured, names.noun)
    unknown = len(fleet.rows) - copies.measured
    rest = f" Nothing is known of {numbers.count(unknown, names.noun)}." if unknown else ""
    return f"{_costs(fleet, copies, share, whole, names)}.{rest}"


def _kernels_cost(share: Spread | None, rows: int, names: "Names") -> str:
    """What the names of kernels tell where no rank was recorded with strides."""
    if share is None or not share.most:
        return f"What layout costs is not known of {_all(rows, names.noun)}"
    least, most = numbers.share(share.least), numbers.share(share.most)
    range_ = most if least == most else f"{least} to {most}"
    whole = _all(share.measured, names.noun)
    return f"On {whole} layout costs at least {range_} of kernel-busy time, in kernels that only change layout"


def _costs(fleet: Fleet, copies: Spread, share: Spread | None, whole: str, names: "Names") -> str:
    if not copies.most:
        return f"{FINE} on {whole}: no tensor is copied because of it"
    if share is None:
        least, most = (numbers.figure(value) for value in (copies.least, copies.most))
        if least == most:
            return f"Layout costs {numbers.count(copies.most, 'copy', 'copies')} {_period(fleet)} on {whole}"
        where = names.name(copies.most_at)
        return f"Layout costs {least} to {most} copies {_period(fleet)} on {whole}, the most on {where}"
    least, most = (numbers.share(value) for value in (share.least, share.most))
    costs = f"{FINE} on {whole}: it costs" if fleet.ok and share.most < NOTICEABLE else f"On {whole} layout costs"
    if least == most:
        return f"{costs} {most} of {_share_of(fleet)}"
    return f"{costs} {least} to {most} of {_share_of(fleet)}, the most on {names.name(share.most_at)}"


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
        each = f" below {numbers.share(fleet.min_share)} of {_share_of(fleet)} each" if fleet.min_share else ""
        yield from hang("", Text(f"{numbers.count(small, 'more finding')}{each}."), width)
    for note in fleet.notes:
        yield Text()
        where = "" if note.files >= len(fleet.rows) else f" ({_of(note.files, len(fleet.rows), names.noun)})"
        yield from hang("note: ", quote(note.text + where), width, "bold cyan")
    yield Text()
    yield from hang("", Text(measured(fleet), "dim"), width)


def _failures(fleet: Fleet, width: int) -> Iterator[Text]:
    files = len(fleet.rows) + len(fleet.failures)
    yield Text()
    yield Text(f"{_of(len(fleet.failures), files, 'file')} could not be read:", "bold red")
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
    yield Text(f"{_of(len(by_file), len(fleet.rows), names.noun)} unlike the others:", "bold yellow")
    for at, several in list(by_file.items())[:_MOST_ROWS]:
        figures = ", ".join(apart(outlier, fleet) for outlier in several)
        yield from hang("  ", Text.assemble((names.name(at), "bold"), f": {figures}"), width)
    if len(by_file) > _MOST_ROWS:
        yield Text(f"  … {len(by_file) - _MOST_ROWS} more: all of them in --format json")


def apart(outlier: Outlier, fleet: Fleet) -> str:
    """In what a file is unlike the others."""
    value, middle = (figure_text(outlier.figure, number) for number in (outlier.value, outlier.median))
    what = {
        "step_ns": f"a step of {value}",
        "copies": f"{numbers.count(outlier.value, 'copy', 'copies')} {_period(fleet)}",
        "bytes_moved": f"{value} moved {_period(fleet)}",
        "share": f"{value} of {_share_of(fleet)} in copies",
        "layout_kernels_share": f"{value} of kernel-busy time in layout kernels",
    }[outlier.figure]
    return f"{what} (median {middle})"


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


def spread_over(finding: FleetFinding, fleet: Fleet, names: "Names") -> str:
    """On how many files a finding is, and on which, if they are few."""
    if finding.files == len(fleet.rows):
        return _all(finding.files, names.noun)
    whole = _of(finding.files, len(fleet.rows), names.noun)
    if finding.files > len(finding.first_files):
        return whole
    return f"{whole}: {names.listed(finding.first_files)}"


def cost_text(finding: FleetFinding, fleet: Fleet, names: "Names") -> str:
    """What it costs on average, and where most."""
    wholes = {row.at: row.share_of for row in fleet.rows}
    whole = wholes.get(finding.most_at, _whole(fleet))
    period = _period(fleet)
    # Shares of a step's time and of kernels' have no mean.
    mean = (
        f"{numbers.cost(finding.mean)} {period}{_of_what(finding.mean, whole) if len({*wholes.values()}) == 1 else ''}"
    )
    most = f"{numbers.cost(finding.most)} {period}{_of_what(finding.most, whole)}"
    if finding.files == 1:
        return mean
    if mean == most:
        return f"{mean}, on each of them"
    return f"{mean}, on average; {most} on {names.name(finding.most_at)}"


def _of_what(cost: Cost, whole: str) -> str:
    return "" if cost.share is None else f": {numbers.share(cost.share)} of {whole}"


def measured(fleet: Fleet) -> str:
    """What the figures were measured on."""
    facts = []
    for key, values in fleet.environment.items():
        shown = [one_line(value) + (f" on {files}" if len(values) > 1 else "") for value, files in values.items()]
        facts.append(f"{one_line(key)} {', '.join(shown[:4])}{' …' if len(shown) > 4 else ''}")
    code = fleet.listed[0].code if fleet.listed else None
    rule = f" What a code means: stridewise rule {code}." if code else ""
    files = numbers.count(len(fleet.rows), "file")
    return f"Measured: {'; '.join([files, *facts])}.{rule} One file in full: stridewise trace FILE."


# ----------------------------------------------------------------------------------------------------------- the words


class Names:
    """What files are called: by rank where no two have the same, else by file."""

    def __init__(self, fleet: Fleet) -> None:
        ranks = Counter(row.at.rank for row in fleet.rows)
        self._by_rank = None not in ranks and all(count == 1 for count in ranks.values())
        self.noun = "rank" if self._by_rank else "file"

    def name(self, at: FleetFile) -> str:
        """Of one file."""
        return f"rank {at.rank}" if self._by_rank else one_line(at.file)

    def listed(self, files: Sequence[FleetFile]) -> str:
        """Of several."""
        if self._by_rank and len(files) > 1:
            return "ranks " + ", ".join(str(at.rank) for at in files)
        return ", ".join(map(self.name, files))

    def count(self, number: int) -> str:
        """How many."""
        return numbers.count(number, self.noun)


def _all(number: int, noun: str) -> str:
    """`1 rank`, `both ranks`, `all 64 ranks`."""
    if number == 2:
        return f"both {noun}s"
    return f"all {numbers.count(number, noun)}" if number > 1 else numbers.count(number, noun)


def _of(some: int, whole: int, noun: str) -> str:
    return numbers.count(whole, noun) if some == whole else f"{some} of {numbers.count(whole, noun)}"


def _period(fleet: Fleet) -> str:
    return "a step" if any(row.steps_found for row in fleet.rows) else "in this run"


def _whole(fleet: Fleet) -> str:
    """What shares are of, on most ranks."""
    return Counter(row.share_of for row in fleet.rows).most_common(1)[0][0]


def _share_of(fleet: Fleet) -> str:
    period = "a step" if any(row.steps_found for row in fleet.rows) else "this run"
    return period if _whole(fleet) == "step time" else f"{period}'s {_whole(fleet)}"


def figure_text(figure: FleetFigure, value: float) -> str:
    """A figure with its unit."""
    if figure in ("step_ns", "duration_ns"):
        return numbers.duration(value)
    if figure == "bytes_moved":
        return numbers.byte_count(value)
    return numbers.figure(value) if figure == "copies" else numbers.share(value)


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
