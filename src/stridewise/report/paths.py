"""The table of a terminal report that says which implementation ran each operator."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from stridewise.report.prose import column, hang
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import PathRow, Report, numbers

_MOST = 40
_COUNT, _TIME = 6, 8
_INDENT = " " * (_COUNT + _TIME + 3)
_WORDS = (26, 26, 10)
"""Cells that operator, backend and dtype may take."""
_FILE, _MODULE = 40, 28
_CAST = "→ "


def table(report: Report, width: int) -> Iterator[Text]:
    """List them for the whole recording, equal executions in one row, the longest first."""
    if not report.paths:
        nothing = "No convolution, product, normalization, attention or pooling was recorded."
        yield from hang("", Text(nothing), width)
        return
    executions = numbers.count(sum(row.count for row in report.paths), "operator")
    title = f"What ran {executions}: implementation, dtype and layouts, equal ones of the recording in one row"
    yield from hang("", Text(title, "bold"), width)
    shown = report.paths[:_MOST]
    columns = zip(*map(_words, shown), strict=True)
    cells = [min(most, max(map(cell_len, texts))) for most, texts in zip(_WORDS, columns, strict=True)]
    for row in shown:
        yield from _row(row, cells, width)
    rest = report.paths[_MOST:]
    if rest:
        more = numbers.count(len(rest), "more row")
        time = numbers.duration(sum(row.duration_ns or 0 for row in rest))
        yield from hang("", Text(f"… {more}, together {time}: all of them in --format json"), width)
    for sign, meaning in _legend(shown):
        yield from hang(f"{sign} ", Text(meaning), width, "bold cyan")


def _legend(rows: Sequence[PathRow]) -> Iterator[tuple[str, str]]:
    if any(row.autocast for row in rows):
        yield _CAST.strip(), "Autocast gave the operator operands of this dtype."
    if any(row.inferred for row in rows):
        yield "?", "Not recorded, but concluded from what was."
    if any(row.backend == "unknown" and row.family == "matmul" for row in rows):
        yield "unknown", "On the CPU no profile shows which library multiplied; --library-copies shows oneDNN."


def _words(row: PathRow) -> tuple[str, str, str]:
    return (
        one_line(row.op).removeprefix("aten::"),
        one_line(row.backend) + ("?" if row.inferred else ""),
        f"{_CAST if row.autocast else ''}{one_line(row.dtype or '')}",
    )


def _row(row: PathRow, cells: Sequence[int], width: int) -> Iterator[Text]:
    time = numbers.duration(row.duration_ns) if row.duration_ns is not None else "no time"
    words = "  ".join(column(shorten(text, cell), cell) for text, cell in zip(_words(row), cells, strict=True))
    line = f"{row.count:>{_COUNT}}× {time:>{_TIME}} {words}"
    operands = one_line("; ".join(row.operands))
    style = "bold" if row.missed else ""
    if cell_len(line) + cell_len(operands) + 2 <= width:
        yield Text(f"{line}  {operands}".rstrip(), style)
    else:
        yield Text(shorten(line.rstrip(), width), style)
        if operands:
            yield from hang(_INDENT, Text(operands), width)
    place, evidence = _place(row), one_line(row.evidence.replace("aten::", ""))
    room = width - len(_INDENT)
    lines = (
        [f"{place}, {evidence}"] if place and cell_len(place) + cell_len(evidence) + 2 <= room else [place, evidence]
    )
    for text in filter(None, lines):
        yield Text(_INDENT + shorten(text, room), "dim")
    if row.missed:
        yield from hang(f"{_INDENT}missed ", Text(one_line(row.missed)), width, "yellow")


def _place(row: PathRow) -> str:
    site = row.site
    if site is None or site.where == "unknown place":
        return ""
    where = shorten_left(one_line(site.where), _FILE)
    if not site.module or site.module == site.where:
        return where
    return f"{where}, {shorten_left(one_line(site.module), _MODULE)}"
