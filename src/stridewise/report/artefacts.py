"""What an exported program does with layouts, as people read it: a sentence, its inputs, and its guard."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results import numbers
from stridewise.results.artefacts import Artefact, ArtefactInput, ArtefactKind

_COUNT = 8
_LEAST = 8
_MOST_INPUTS = 2
"""That the sentence names for each thing that goes wrong."""
_HEADS = ("input", "sizes", "dtype", "made for strides")
_COUNTS = ("right", "refused", "wrong", "failed")
_KINDS: dict[ArtefactKind, str] = {
    "exported program": "an exported program",
    "AOTInductor package": "an AOTInductor package",
    "TorchScript module": "a TorchScript module",
}


_DOES = {
    "wrong": "is silently wrong for {}",
    "failed": "fails for {} without telling why",
    "refused": "refuses {}, with an error that tells of layout",
}


def sentence(result: Artefact) -> str:
    """What it does with layouts that it was not made for."""
    what = f"`{result.name}`, {_KINDS[result.kind]},"
    if not result.cases:
        return f"{what} was not tried in any layout."
    parts = [
        does.format(_of([(getattr(row, count), row) for row in result.inputs if getattr(row, count)]))
        for count, does in _DOES.items()
        if any(getattr(row, count) for row in result.inputs)
    ]
    if parts:
        return f"{what} {'; '.join(parts)}."
    ran = numbers.count(len(result.cases), "run")
    if not result.ok:
        return f"{what} goes wrong where several inputs have other layouts, in {ran}."
    if not result.compared:
        return f"{what} gives nothing that can be compared; no harm was seen in {ran}."
    ran = f"{ran}, also of inputs together" if len(result.inputs) > 1 else ran
    branches = "" if result.model_given else " Branches on layout were not looked for: that takes the model."
    if result.left:
        return f"{what} gave only right results in {ran}; {numbers.count(result.left, 'more run')} could not be made."
    return f"{what} takes its inputs in every layout: {ran}, and every result was right.{branches}"


def inputs(result: Artefact, width: int) -> Iterator[Text]:
    """A row for each input: what it was made for, and how many other layouts it takes."""
    if not result.inputs:
        return
    rows = [(one_line(row.name), _tuple(row.sizes), row.dtype, _tuple(row.strides)) for row in result.inputs]
    cells = _fitted([max(map(cell_len, texts)) for texts in zip(_HEADS, *rows, strict=True)], width)
    yield Text(_columns(_HEADS, cells) + "".join(f"{count:>{_COUNT}}" for count in _COUNTS), "bold")
    for texts, row in zip(rows, result.inputs, strict=True):
        line = Text(_columns(texts, cells))
        for count, style in zip(_COUNTS, ("green", "", "red", "red"), strict=True):
            number = getattr(row, count)
            line.append(f"{number:>{_COUNT}}", style if number else "dim")
        line.truncate(width, overflow="ellipsis")
        yield line
    yield from hang("", Text(_checks(result.inputs), "dim"), width)


def guard(result: Artefact, width: int) -> Iterator[Text]:
    """What the guard does, and how to have it; the text itself is long."""
    if result.guard is None:
        return
    tried = {
        None: "it was not tried",
        True: "with it every layout that was tried is right",
        False: "with it some layouts are still wrong",
    }[result.guard_holds]
    said = f"copies inputs to the layouts above, or refuses others; {tried}. `--guard FILE` writes it, and"
    yield from hang("guard: ", quote(f"{said} `stridewise.guard_artefact(program, result)` applies it."), width, "bold")


def _fitted(cells: list[int], width: int) -> list[int]:
    """Widths of columns that leave room for the counts: the widest give way first."""
    room = width - _COUNT * len(_COUNTS) - 2 * len(cells)
    while sum(cells) > room and max(cells) > _LEAST:
        cells[cells.index(max(cells))] -= 1
    return cells


def _checks(rows: Sequence[ArtefactInput]) -> str:
    asked = {
        "no": "It does not compare strides with those that it was made for.",
        "only if asked": "It compares strides only where AOTI_RUNTIME_CHECK_INPUTS=1 is set; here it was not.",
        "at run time": "It compares strides at run time.",
    }[rows[0].checks]
    return (
        "Counts are other layouts of the same values. refused: an error that tells of layout; wrong: no error; failed: "
        f"other errors, crashes. {asked}"
    )


def _of(found: Sequence[tuple[int, ArtefactInput]]) -> str:
    shown = [
        f"{count} of {numbers.count(row.tried, 'other layout')} of `{row.name}`" for count, row in found[:_MOST_INPUTS]
    ]
    if len(found) > len(shown):
        shown.append(numbers.count(len(found) - len(shown), "more input"))
    return _joined(shown)


def _columns(texts: Sequence[str], cells: Sequence[int]) -> str:
    return "".join(f"{column(shorten(text, room), room)}  " for text, room in zip(texts, cells, strict=True))


def _tuple(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
