"""The source lines of a site, with the expression marked."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.cells import cell_len

from stridewise.findings import Site
from stridewise.report.text import inert_within, shorten, shorten_left


class SourceLine(Struct, frozen=True):
    """A line in three parts, of which the middle one belongs to the expression; all of it before, if none is known."""

    number: int
    before: str
    marked: str
    after: str

    @property
    def text(self) -> str:
        """The whole line."""
        return self.before + self.marked + self.after


def excerpt(site: Site, most: int | None = 4) -> tuple[SourceLine, ...]:
    """Give the first lines of a site's expression, as they read when it was recorded; nothing if they are not known.

    No file is opened: what a site does not carry is not shown.
    """
    if site.line is None or site.text is None:
        return ()
    first = (site.text.splitlines() or [""])[0]
    last = max(site.end_line or site.line, site.line)
    lines = [_marked(site.line, first, site.column, site.end_column if last == site.line else None)]
    following = (site.expression or "").splitlines()[1:]
    shown = last if most is None else min(last, site.line + most - 1)
    for number, text in zip(range(site.line + 1, shown + 1), following, strict=False):
        indent = len(text) - len(text.lstrip())
        lines.append(_marked(number, text, indent, site.end_column if number == last else None))
    return tuple(lines)


def source_rows(lines: Sequence[SourceLine], width: int) -> Iterator[tuple[int, str, str]]:
    """Lay out lines in `width` cells, their common indentation removed: number, text, and the marks under it."""
    shown = [
        [inert_within(part.replace("\t", "    ")) for part in (line.before, line.marked, line.after)] for line in lines
    ]
    indents = [len(text) - len(text.lstrip(" ")) for text in map("".join, shown) if text.strip()]
    indent = min(indents, default=0)
    for line, (before, marked, after) in zip(lines, shown, strict=True):
        after = (before + marked + after).rstrip()[len(before + marked) :]
        cut = min(indent, len(before))
        before, marked = before[cut:], marked[indent - cut :] if indent > cut and not before else marked
        if cell_len(before + marked + after) > width:
            room = max(width - cell_len(marked), width // 3)
            before = shorten_left(before, room)
            marked = shorten(marked, width - cell_len(before))
            after = shorten(after, width - cell_len(before + marked)) if cell_len(before + marked) < width else ""
        marks = " " * cell_len(before) + "^" * cell_len(marked) if marked.strip() else ""
        yield line.number, before + marked + after, marks


def character_region(site: Site) -> tuple[int, int | None] | None:
    """Give first and end column in characters, counted from 1; the end is None where its line's source is not known.

    None when no column can be told: a byte offset means nothing without the line's text.
    """
    lines = excerpt(site, most=None)
    if not lines or site.column is None:
        return None
    complete = site.end_column is not None and lines[-1].number == (site.end_line or site.line)
    end = len(lines[-1].before + lines[-1].marked) + 1 if complete else None
    return len(lines[0].before) + 1, end


def _marked(number: int, text: str, column: int | None, end_column: int | None) -> SourceLine:
    if column is None:
        return SourceLine(number, text, "", "")
    source = text.encode("utf-8", "replace")
    end = len(source.rstrip()) if end_column is None else end_column
    before, marked, after = source[:column], source[column:end], source[max(column, end) :]
    return SourceLine(number, *(part.decode("utf-8", "replace") for part in (before, marked, after)))
