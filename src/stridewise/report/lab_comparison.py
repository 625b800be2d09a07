"""Runs of the lab on several machines, side by side, as text."""

from collections.abc import Iterator, Sequence
from typing import Literal, TextIO

from rich.text import Text

from stridewise.report import html, json
from stridewise.report.console import write
from stridewise.report.lab_words import STYLES, machine
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results.lab import ClaimRow, LabComparison

_CLAIM = 11
_VERDICT = 22
_SIDE = 14
_LEAST = 25
"""Cells that a text takes at least, to be shown beside the runs."""


def render(
    comparison: LabComparison,
    out: TextIO,
    *,
    format: Literal["text", "json", "html"] = "text",
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it as text of at most 100 columns, as JSON, or as a page."""
    if format == "json":
        out.write(json.dumps(comparison))
    elif format == "html":
        html.render(comparison, out)
    else:
        write(lambda columns: _lines(comparison, columns), out, color=color, width=width)


def headline(comparison: LabComparison) -> str:
    """Where machines disagree."""
    runs, disputed = len(comparison.sides), comparison.disputed
    if runs == 1:
        return f"One run, {len(comparison.claims)} claims."
    if not disputed:
        return f"{runs} runs agree on all claims that they tested."
    return f"{runs} runs disagree on {len(disputed)} of {len(comparison.claims)} claims."


def _lines(comparison: LabComparison, width: int) -> Iterator[Text]:
    yield from hang("", quote(headline(comparison), "bold"), width)
    yield Text()
    for at, side in enumerate(comparison.sides):
        how = "quick" if side.quick else "full"
        yield from hang(f"{_letter(at)}  ", quote(f"{side.name}: {side.date}, {how}, {side.device}"), width)
        yield from hang("   ", quote(machine(side.machine), "dim"), width)
    yield Text()
    cells = min(_VERDICT, (width - _CLAIM) // max(1, len(comparison.sides)))
    sides = "".join(f"{_letter(at):<{cells}}" for at in range(len(comparison.sides)))
    yield Text(f"{'claim':<{_CLAIM}}{sides}".rstrip(), "bold")
    for row in comparison.claims:
        yield _claim(row, width, cells)
    experiment = None
    for arm in comparison.arms:
        if arm.experiment != experiment:
            experiment = arm.experiment
            yield Text()
            yield _row(experiment, [_letter(at) for at in range(len(comparison.sides))], width, "bold")
        said = ["" if found is None else f"{found.middle:.2f}x" for found in arm.ratios]
        yield _row(f"{arm.arm} / {arm.over}", said, width)


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else str(at + 1)


def _claim(row: ClaimRow, width: int, cells: int) -> Text:
    line = Text(f"{shorten(one_line(row.number), 5):<6}{shorten(one_line(row.section), 4):<5}")
    for verdict in row.verdicts:
        line.append(column(shorten(verdict or "", cells - 1), cells), STYLES[verdict] if verdict else "")
    room = width - _CLAIM - cells * len(row.verdicts)
    if room > _LEAST:
        line.append(shorten(one_line(row.text), room))
    line.rstrip()
    return line


def _row(label: str, values: Sequence[str], width: int, style: str = "") -> Text:
    """A label, and a value for each run at the right, as far as they fit."""
    cells = min(_SIDE, (width - _LEAST) // max(1, len(values)))
    room = width - cells * len(values)
    return Text.assemble(
        (column(shorten(one_line(label) if style else f"  {one_line(label)}", room), room), style),
        "".join(f"{shorten(value, cells - 1):>{cells}}" for value in values).rstrip(),
    )
