"""The source lines of a site, with the expression marked."""

import linecache
import os
import stat
from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.cells import cell_len

from stridewise.findings import Site
from stridewise.report.text import inert, shorten, shorten_left

_MOST_BYTES = 10_000_000


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
    """Give the first lines of a site's expression; nothing when its source is not known, or reads differently now."""
    if site.line is None:
        return ()
    first = _first_line(site)
    if first is None:
        return ()
    last = max(site.end_line or site.line, site.line)
    lines = [_marked(site.line, first, site.column, site.end_column if last == site.line else None)]
    shown = last if most is None else min(last, site.line + most - 1)
    for number in range(site.line + 1, shown + 1):
        text = _following_line(site, number, first)
        if text is None:
            break
        indent = len(text) - len(text.lstrip())
        lines.append(_marked(number, text, indent, site.end_column if number == last else None))
    return tuple(lines)


def source_rows(lines: Sequence[SourceLine], width: int) -> Iterator[tuple[int, str, str]]:
    """Lay out lines in `width` cells, their common indentation removed: number, text, and the marks under it."""
    shown = [[inert(part.replace("\t", "    ")) for part in (line.before, line.marked, line.after)] for line in lines]
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


def _first_line(site: Site) -> str | None:
    if site.text is not None:
        return (site.text.splitlines() or [""])[0]
    text = _line_of_file(site.file, site.line)
    if text is None or site.expression is None or site.column is None:
        return text
    # The file may have changed since: then it would be the wrong expression that is underlined.
    found = _marked(0, text, site.column, site.end_column if site.end_line in (None, site.line) else None).marked
    return text if found.rstrip() == site.expression.splitlines()[0].rstrip() else None


def _following_line(site: Site, number: int, first: str) -> str | None:
    assert site.line is not None
    if _line_of_file(site.file, site.line) == first:
        return _line_of_file(site.file, number)
    lines = (site.expression or "").splitlines()
    return lines[number - site.line] if number - site.line < len(lines) else None


def _marked(number: int, text: str, column: int | None, end_column: int | None) -> SourceLine:
    if column is None:
        return SourceLine(number, text, "", "")
    source = text.encode("utf-8", "replace")
    end = len(source.rstrip()) if end_column is None else end_column
    before, marked, after = source[:column], source[column:end], source[max(column, end) :]
    return SourceLine(number, *(part.decode("utf-8", "replace") for part in (before, marked, after)))


def _line_of_file(file: str | None, line: int | None) -> str | None:
    """Read a line of a Python source, relative to the current folder or sys.path, as linecache looks for it.

    The name may come from somebody else's trace: nothing but regular files of Python is opened.
    """
    if file is None or line is None:
        return None
    known = file in linecache.cache  # as a notebook's cells are, which are in no file
    if not known and not (file.endswith((".py", ".pyi")) and _is_small_file(file)):
        return None
    return linecache.getline(file, line).rstrip("\r\n") or None


def _is_small_file(file: str) -> bool:
    try:
        status = os.stat(file)
    except ValueError:  # no name of a file: a NUL, half a surrogate pair
        return False
    except OSError:
        return not os.path.isabs(file)  # linecache goes on along sys.path
    return stat.S_ISREG(status.st_mode) and status.st_size < _MOST_BYTES
