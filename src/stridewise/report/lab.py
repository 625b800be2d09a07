"""What the lab found as text: a claim a line and the right statement, or with details all that was measured."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.report import html, json
from stridewise.report.console import write
from stridewise.report.lab_words import STYLES, copied, counted_as, headline, machine, mark, ran, ratio, sizes
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results import numbers
from stridewise.results.lab import ClaimResult, Comparison, Counts, ExperimentResult, Lab

LabFormat = Literal["text", "json", "html"]

_FEW = 3
"""Experiments whose details are shown unasked."""
_NAME = 46
_INDENT = 4
_FIGURES = 32
_LEAST = 12
"""Cells of an arm's name at least."""
_BAR = 30
_VERDICT = 23


def render(
    lab: Lab,
    out: TextIO,
    *,
    format: LabFormat = "text",
    details: bool | None = None,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it as text of at most 100 columns, as JSON, or as a page.

    Without `details` the text has a line for each claim, but for up to three experiments, which are told whole.
    """
    if format == "json":
        out.write(json.dumps(lab))
    elif format == "html":
        html.render(lab, out)
    else:
        whole = len(lab.experiments) <= _FEW if details is None else details
        write(lambda columns: _lines(lab, whole, columns), out, color=color, width=width)


def _lines(lab: Lab, details: bool, width: int) -> Iterator[Text]:
    yield from hang("", quote(headline(lab), "bold"), width)
    for experiment in lab.experiments:
        yield Text()
        yield from _experiment(experiment, details, width)
    yield Text()
    yield from hang("rule     ", quote(lab.rule), width, "bold")
    yield from hang("machine  ", quote(machine(lab.machine)), width, "bold")
    yield from hang("run      ", quote(ran(lab)), width, "bold")
    if not details and lab.experiments:
        yield from hang("more     ", Text("--details shows what was measured, --html makes a page."), width, "bold")
    for note in lab.notes:
        yield from hang("note: ", quote(note), width, "bold cyan")


def _experiment(experiment: ExperimentResult, details: bool, width: int) -> Iterator[Text]:
    name = shorten(one_line(experiment.name), width // 2)
    title = shorten(one_line(experiment.title), width - cell_len(name) - 2)
    yield Text.assemble((column(title, width - cell_len(name)), "bold"), (name, "dim"))
    if experiment.failed:
        yield from hang("  ", quote(f"It ended early: {experiment.failed}", "bold red"), width)
    if details:
        yield from hang("  ", quote(experiment.method), width)
        if experiment.sizes:
            yield from hang("  ", quote(f"Sizes: {sizes(experiment.sizes)}.", "dim"), width)
        for comparison in experiment.comparisons:
            yield Text()
            yield from _comparison(comparison, width)
        for counts in experiment.counts:
            yield Text()
            yield from _counts(counts, width)
        yield Text()
    for claim in experiment.claims:
        yield from _claim(claim, details, width)


def _comparison(comparison: Comparison, width: int) -> Iterator[Text]:
    rows = [(one_line(arm.name), arm, copied(arm)) for arm in comparison.arms]
    room = width - _INDENT - _FIGURES - max(len(said) for _, _, said in rows)
    cells = max(_LEAST, min(room, max(cell_len(name) for name, _, _ in rows)))
    title = f"  {shorten(one_line(comparison.title), width - 2)}"
    heads = f"{'time':>8}  {'over the first':<22}copies"
    if cell_len(title) < _INDENT + cells:
        yield Text.assemble((column(title, _INDENT + cells), "underline"), (heads, "dim"))
    else:
        yield Text(title, "underline")
        yield Text(" " * (_INDENT + cells) + heads, "dim")
    for name, arm, said in rows:
        over = "" if arm.ratio is None else ratio(arm.ratio)
        label = f"{' ' * _INDENT}{column(shorten(name, cells), cells)}{numbers.duration(arm.median_ns):>8}"
        yield Text(f"{label}  {over:<22}{shorten(said, width - _INDENT - cells - _FIGURES)}")
        if arm.same == "different":
            yield Text(f"{' ' * (_INDENT + 2)}its results are others", "bold red")


def _counts(counts: Counts, width: int) -> Iterator[Text]:
    yield Text(f"  {shorten(one_line(counts.title), width - 2)}", "underline")
    most = max(counts.values.values(), default=0) or 1
    rows = [(one_line(label), value) for label, value in counts.values.items()]
    said = [shorten(one_line(counted_as(value, counts.unit)), _NAME) for _, value in rows]
    figures = max(map(cell_len, said), default=0)
    longest = max((cell_len(label) for label, _ in rows), default=0)
    cells = min(longest, max(_LEAST, width - _INDENT - figures - _BAR // 2))
    bar = max(0, min(_BAR, width - _INDENT - cells - figures - 4))
    for (label, value), text in zip(rows, said, strict=True):
        start = f"{' ' * _INDENT}{column(shorten(label, cells), cells)}  {' ' * (figures - cell_len(text))}{text}"
        yield Text(f"{start}  {'▇' * round(bar * max(value, 0) / most)}".rstrip())


def _claim(claim: ClaimResult, details: bool, width: int) -> Iterator[Text]:
    label = f"  {shorten(one_line(claim.number), 5):<6}"
    indent = " " * (len(label) + (6 if details else _VERDICT))
    if details:
        section = f"{shorten(one_line(claim.section), 5):<6}"
        yield Text.assemble(label, (section, "dim"), (claim.verdict, STYLES[claim.verdict]))
        yield from hang(indent, quote(claim.text), width)
        for prediction in claim.predictions:
            said = quote(f"{prediction.text}: {prediction.measured}", "dim" if prediction.came_true is None else "")
            yield from hang(f"{indent}{mark(prediction):<5}", said, width)
    else:
        first, *rest = hang(indent, quote(claim.text), width)
        verdict = f"{claim.verdict:<{_VERDICT}}"
        yield Text.assemble(label, (verdict, STYLES[claim.verdict]), first[len(indent) :])
        yield from rest
    yield from hang(f"{indent}right: ", quote(claim.correct), width, "dim")


Row = tuple[str, str, Sequence[tuple[str, str, str]]]
"""An experiment that was not run: its name, what it is about, and its claims: number, section and text."""


def listed(experiments: Iterable[Row], *, details: bool = False) -> Iterator[str]:
    """A line for each experiment; with `details` one for each of its claims."""
    rows = list(experiments)
    cells = max((len(name) for name, _, _ in rows), default=0)
    for name, title, claims in rows:
        sections = ", ".join(dict.fromkeys(section for _, section, _ in claims))
        yield f"{name:<{cells}}  {title} (section {sections}: {', '.join(number for number, _, _ in claims)})"
        if details:
            yield from (f"{'':<{cells}}    {number:<5} {text}" for number, _, text in claims)
