"""What a page holds, whichever result it shows. Text is as it was found: the templates escape it."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from stridewise.findings import Severity
from stridewise.report.source import SourceLine

Tone = Literal["fine", "look", "wrong"]
"""How a page's verdict is coloured: nothing to do, something costs, results are wrong."""


class Figure(Struct, frozen=True):
    """One of the numbers under the verdict."""

    value: str
    label: str
    detail: str = ""


class Stop(Struct, frozen=True):
    """A place on the way of a strided tensor: where it starts, what passes it on, or who pays."""

    role: Literal["origin", "carrier", "payer"]
    expression: str
    place: str
    detail: str = ""
    """What it pays, or how often it passes the tensor on."""
    operand: str = ""


class DiffLine(Struct, frozen=True):
    """A line of a diff."""

    mark: Literal[" ", "-", "+", "@"]
    text: str


class Suggestion(Struct, frozen=True):
    """An edit of source, or a program that shows the fault."""

    text: str
    lines: tuple[DiffLine, ...] = ()
    code: str = ""


class Interval(Struct, frozen=True):
    """How fast a changed program is, with 1 for the unchanged one; above it is faster."""

    low: float
    middle: float
    high: float
    verdict: str
    text: str


class Card(Struct, frozen=True):
    """One finding."""

    id: str
    code: str
    title: str
    severity: Severity
    message: str
    times: str = ""
    file: str = ""
    place: str = ""
    """File, line and column."""
    within: tuple[str, ...] = ()
    """Function, module, frame of torch."""
    line: int = 0
    module: str = ""
    source: tuple[SourceLine, ...] = ()
    stops: tuple[Stop, ...] = ()
    copied: str = ""
    cost: str = ""
    share: float | None = None
    bytes_moved: float = 0
    evidence: tuple[str, ...] = ()
    advice: str = ""
    suggestions: tuple[Suggestion, ...] = ()
    trials: tuple[Interval, ...] = ()
    inferred: bool = False


class Table(Struct, frozen=True):
    """Rows of text. Columns named in `numeric` are set to the right."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    numeric: tuple[int, ...] = ()
    code: tuple[int, ...] = ()
    """Columns that hold code or names."""
    prose: tuple[int, ...] = ()
    """Columns of sentences, with `code` in them."""
    folded: bool = False
    """Shown when it is opened."""
    leading: bool = False
    """Stands before the findings."""


class Bar(Struct, frozen=True):
    """One row of a bar chart."""

    label: str
    value: float
    """From 0 to 1: of the whole."""
    text: str
    kind: str
    """What colours it."""


class Bars(Struct, frozen=True):
    """A bar chart."""

    title: str
    rows: tuple[Bar, ...]
    note: str = ""


class Layer(Struct, frozen=True):
    """One call of a vision net, as the strip shows it."""

    name: str
    layout: str
    format: str
    """`NCHW`, `NHWC`, or a layout class that is neither."""
    where: str
    """The module."""
    copies: int
    times: int = 1
    """How often it ran."""

    @property
    def short(self) -> str:
        """The end of the module's path, which tells layers apart."""
        return ".".join(self.where.split(".")[-2:])


class Trial(Struct, frozen=True):
    """An edit that was tried."""

    what: str
    place: str
    verdict: str
    won: bool
    interval: Interval | None
    facts: tuple[tuple[str, str], ...] = ()


class Meaning(Struct, frozen=True):
    """What a code means: sections of a heading and paragraphs."""

    code: str
    title: str
    summary: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]


class Mark(Struct, frozen=True):
    """One row of a plot: a bar from `left` to `right`, and the point that it is about, in percent of the width."""

    label: str
    left: float
    right: float
    point: float | None
    text: str
    detail: str = ""


class Plot(Struct, frozen=True):
    """Rows on one scale."""

    title: str
    rows: tuple[Mark, ...]
    one: float | None = None
    """Where a ratio of 1 lies; None if the rows are no ratios."""
    note: str = ""


class Told(Struct, frozen=True):
    """A prediction, and whether it came true."""

    mark: str
    text: str
    measured: str


class Tested(Struct, frozen=True):
    """A claim that was tested."""

    number: str
    section: str
    verdict: str
    text: str
    correct: str
    told: tuple[Told, ...]


class Exhibit(Struct, frozen=True):
    """One experiment: its plots and its claims."""

    name: str
    title: str
    method: str
    sizes: str
    plots: tuple[Plot, ...]
    claims: tuple[Tested, ...]
    failed: str = ""
    is_open: bool = True


class Charts(Struct, frozen=True, omit_defaults=True):
    """Data of what a script draws; None where there is nothing to draw."""

    map: Mapping[str, Any] | None = None
    icicle: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return self.map is not None or self.icicle is not None


class Page(Struct, frozen=True):
    """One result."""

    command: str
    """`stridewise run`, `stridewise lint`, …"""
    verdict: str
    tone: Tone
    figures: tuple[Figure, ...] = ()
    remarks: tuple[str, ...] = ()
    """Sentences behind the verdict."""
    cards: tuple[Card, ...] = ()
    cards_title: str = "Findings"
    folded: str = ""
    trials: tuple[Trial, ...] = ()
    diff: tuple[DiffLine, ...] = ()
    layers: tuple[Layer, ...] = ()
    layers_left: int = 0
    map_note: str = ""
    bars: tuple[Bars, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    tables: tuple[Table, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    """Programs that belong to the result as a whole: a contract, a guard."""
    notes: tuple[str, ...] = ()
    measured: str = ""
    meanings: tuple[Meaning, ...] = ()
