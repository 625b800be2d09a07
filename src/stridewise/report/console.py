"""Lines of text on a terminal, in a pipe or in a file: their width, their colours, and what the stream can carry."""

import io
import os
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stridewise.report.color import wants_color

WIDTH = 100
"""Of prose, which nobody reads in longer lines. Tables are as wide as the terminal is."""
_LEAST = 60

_ASCII = str.maketrans({"…": "...", "│": "|", "├": "|", "└": "`", "─": "-", "×": "x", "→": ">", "µ": "u"})


def write(
    lines: Callable[[int], Iterable[Text]], out: TextIO, *, color: bool | None = None, width: int | None = None
) -> None:
    """Write what `lines` gives for a width, at most 100 columns; without colour unless `out` is a terminal."""
    color = wants_color(out) if color is None else color
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=WIDTH,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        color_system="auto" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for line in lines(width or min(WIDTH, _terminal_width(out))):
        console.print(line, soft_wrap=True)
    write_plain(buffer.getvalue(), out)


def write_plain(text: str, out: TextIO) -> None:
    """Write a text as it is, in what the stream can carry."""
    out.write(_encodable(text, getattr(out, "encoding", None) or "utf-8"))


def columns_of(out: TextIO) -> int:
    """How wide a table may be: what COLUMNS says, else as the terminal is; `WIDTH` for what is no descriptor."""
    try:
        out.fileno()
    except (OSError, ValueError):
        return WIDTH
    asked = os.environ.get("COLUMNS", "")
    return max(_LEAST, int(asked[:4])) if asked.isascii() and asked.isdigit() else _terminal_width(out)


def _terminal_width(out: TextIO) -> int:
    try:
        return max(_LEAST, os.get_terminal_size(out.fileno()).columns)
    except (OSError, ValueError):
        return WIDTH


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return text
