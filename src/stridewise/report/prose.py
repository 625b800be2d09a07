"""Paragraphs and aligned rows of a terminal report, wrapped or cut to a width."""

import io
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from stridewise.report.console import WIDTH
from stridewise.report.text import inert

_CONSOLE = Console(file=io.StringIO(), color_system=None, force_jupyter=False)


def quote(text: str, style: str = "") -> Text:
    """Make text from elsewhere showable, its `code` in bold. Line breaks stay."""
    shown = Text("\n".join(inert(line) for line in text.expandtabs(4).splitlines()), style)
    shown.highlight_regex(r"`[^`\n]+`", "bold")
    return shown


def hang(label: str, text: Text, width: int, style: str = "") -> Iterator[Text]:
    """Wrap a paragraph; its label stands before the first line, and the other lines are indented as far.

    It is never wider than `WIDTH`, though tables beside it may be.
    """
    yield from wrapped(label, text, min(width, WIDTH), style)


def wrapped(label: str, text: Text, width: int, style: str = "") -> Iterator[Text]:
    """The same for a row of a table, which may be as wide as that."""
    for index, line in enumerate(text.wrap(_CONSOLE, width - cell_len(label))):
        line.rstrip()
        yield Text.assemble((label if index == 0 else " " * cell_len(label), style), line)


def column(text: str, cells: int) -> str:
    """Pad a text that fits to a column's width."""
    return set_cell_size(text, cells)
