"""Runs of the lab on several machines, side by side, as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TextIO

from msgspec import structs
from rich.text import Text

from stridewise.report import html, json
from stridewise.report.console import write
from stridewise.report.lab_words import STYLES, comparison_headline, how, machine, ratio
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results import numbers
from stridewise.results.lab import ClaimRow, ClaimVerdict, LabComparison

_CLAIM = 11
_VERDICT = 22
_SHORT = 7
_BRIEF: Mapping[ClaimVerdict, str] = {
    "holds": "yes",
    "holds in part": "part",
    "does not hold": "no",
    "cannot be tested here": "–",
}
_SIDE = 14
_WIDE_SIDE = 24
_FEW = 2
"""Runs whose intervals have room."""
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


def _lines(comparison: LabComparison, width: int) -> Iterator[Text]:
    yield from hang("", quote(comparison_headline(comparison), "bold"), width)
    yield Text()
    most = (width - _CLAIM) // _SHORT
    if len(comparison.sides) > most:
        left = numbers.count(len(comparison.sides) - most, "more run")
        yield from hang("", Text(f"Only {most} runs have room beside each other: {left} in --html and --json."), width)
        comparison = _first(comparison, most)
    for at, side in enumerate(comparison.sides):
        yield from hang(f"{_letter(at):<3}", quote(f"{side.name}: {how(side)}"), width)
        yield from hang("   ", quote(machine(side.machine), "dim"), width)
    yield Text()
    cells = min(_VERDICT, (width - _CLAIM) // max(1, len(comparison.sides)))
    sides = "".join(f"{_letter(at):<{cells}}" for at in range(len(comparison.sides)))
    yield Text(f"{'claim':<{_CLAIM}}{sides}".rstrip(), "bold")
    for row in comparison.claims:
        yield _claim(row, width, cells)
    yield from _arms(comparison, width)


def _arms(comparison: LabComparison, width: int) -> Iterator[Text]:
    few = len(comparison.sides) <= _FEW
    side = _WIDE_SIDE if few else _SIDE
    experiment = None
    for arm in comparison.arms:
        if arm.experiment != experiment:
            experiment = arm.experiment
            yield Text()
            yield _row(one_line(experiment), [_letter(at) for at in range(len(arm.ratios))], side, width, "bold")
        said = ["" if found is None else ratio(found) if few else f"{found.middle:.2f}x" for found in arm.ratios]
        yield _row(f"{'≠' if arm.differs else ' '} {one_line(f'{arm.arm} / {arm.over}')}", said, side, width)
    if comparison.arms:
        yield Text()
        text = "Ratios are an arm's time over another's: above 1 is slower. ≠: the intervals of two runs don't meet."
        yield from hang("", Text(text, "dim"), width)


def _first(comparison: LabComparison, most: int) -> LabComparison:
    return structs.replace(
        comparison,
        sides=comparison.sides[:most],
        claims=tuple(structs.replace(row, verdicts=row.verdicts[:most]) for row in comparison.claims),
        arms=tuple(structs.replace(row, ratios=row.ratios[:most]) for row in comparison.arms),
    )


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else str(at + 1)


def _claim(row: ClaimRow, width: int, cells: int) -> Text:
    line = Text(f"{shorten(one_line(row.number), 5):<6}{shorten(one_line(row.section), 4):<5}")
    for verdict in row.verdicts:
        said = "" if verdict is None else verdict if cells == _VERDICT else _BRIEF[verdict]
        line.append(column(said, cells), STYLES[verdict] if verdict else "")
    room = width - _CLAIM - cells * len(row.verdicts)
    if room > _LEAST:
        line.append(shorten(one_line(row.text), room))
    line.rstrip()
    return line


def _row(label: str, values: Sequence[str], side: int, width: int, style: str = "") -> Text:
    """A label, and a value for each run at the right, as far as they fit."""
    cells = min(side, (width - _LEAST) // max(1, len(values)))
    room = width - cells * len(values)
    said = "".join(f"{shorten(value, cells - 1):>{cells}}" for value in values)
    return Text.assemble((column(shorten(label, room), room), style), said.rstrip())
