"""Files as they were looked at: where offsets lie in their text, and what edits make of their lines."""

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import msgspec
from msgspec import Struct

from stridewise.errors import InputError
from stridewise.findings import Edit, Finding, Site
from stridewise.source import edits as editing
from stridewise.source.notebook import Cell, Notebook

Read = Callable[[str], bytes | None]
"""Gives the bytes of a file by the name that sites have; None if they are not to be had."""

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Change(Struct, frozen=True):
    """Lines of a file, and what stands in their place after some edits."""

    line: int
    """Of the first of them, counted from 1."""
    old: tuple[str, ...]
    new: tuple[str, ...]


class Content:
    """The bytes of a file. Raises ValueError if they are in no encoding that Python knows."""

    def __init__(self, content: bytes, encoding: str | None = None) -> None:
        self.bytes = content
        try:
            if encoding is None:
                encoding, _ = tokenize.detect_encoding(io.BytesIO(_NEWLINE.sub(b"\n", content)).readline)
        except SyntaxError as error:
            raise ValueError(str(error)) from None
        self._encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        first = len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0
        ends = [(match.start(), match.end()) for match in _NEWLINE.finditer(content)]
        self._starts = [first, *(end for _, end in ends)]
        self._ends = [*(start for start, _ in ends), len(content)]

    def line(self, number: int) -> str | None:
        """The text of a line that counts from 1; None if there is no such line."""
        if not 0 < number <= len(self._starts):
            return None
        return self._decode(self._starts[number - 1], self._ends[number - 1])

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the character of an offset, both counted from 1."""
        line = self._number(offset)
        return line + 1, len(self._decode(self._starts[line], offset)) + 1

    def changes(self, edits: Iterable[Edit]) -> tuple[Change, ...]:
        """What edits of this file change, in its order. Raises ValueError if they do not fit it."""
        return tuple(self._change(group) for group in self._near(editing.ordered(edits)))

    def _near(self, edits: Sequence[Edit]) -> Iterator[list[Edit]]:
        """Edits on the same or adjoining lines together."""
        group: list[Edit] = []
        for edit in edits:
            if group and self._number(edit.span[0]) > self._number(group[-1].span[1]) + 1:
                yield group
                group = []
            group.append(edit)
        if group:
            yield group

    def _change(self, edits: Sequence[Edit]) -> Change:
        first, last = self._number(edits[0].span[0]), self._number(max(edit.span[1] for edit in edits))
        begin, end = self._starts[first], self._ends[last]
        moved = [msgspec.structs.replace(edit, span=(edit.span[0] - begin, edit.span[1] - begin)) for edit in edits]
        before = self.bytes[begin:end]
        old, new = (
            [line.decode(self._encoding) for line in _NEWLINE.split(text)]
            for text in (before, editing.apply(before, self._encoding, moved))
        )
        same = _equal(old, new)
        old, new = old[same:], new[same:]
        rest = _equal(old[::-1], new[::-1])
        return Change(first + same + 1, tuple(old[: len(old) - rest]), tuple(new[: len(new) - rest]))

    def _number(self, offset: int) -> int:
        return max(bisect_right(self._starts, offset) - 1, 0)

    def _decode(self, start: int, end: int) -> str:
        return self.bytes[start:end].decode(self._encoding)


class Contents:
    """Files by name, each read once."""

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or on_disk
        self._found: dict[str, Content | None] = {}
        self._notebooks: dict[str, Notebook | None] = {}

    def get(self, file: str) -> Content | None:
        """A file's content; None if it can't be had or read."""
        if file not in self._found:
            content = self._read(file)
            try:
                self._found[file] = None if content is None else Content(content)
            except ValueError:
                self._found[file] = None
        return self._found[file]

    def in_file(self, site: Site) -> Site:
        """A site for those who know no cells: with the line of the notebook's file, if it has a line for each."""
        if site.cell is None or site.file is None:
            return site
        notebook, cell = self._cell(site.file, site.cell)
        line = None
        if notebook is not None and cell is not None and site.line is not None:
            same = Content(cell.code.encode(), "utf-8").line(site.line) == site.text
            line = notebook.line_in_file(cell, site.line) if same else None
        return msgspec.structs.replace(site, line=line, column=None, end_line=None, end_column=None, cell=None)

    def changes(self, finding: Finding) -> tuple[Change, ...]:
        """What a finding's edits change; nothing unless its file still reads as it did when it was found.

        In a notebook lines are those of the cell.
        """
        site = finding.site
        content = self._code(site)
        others = any((edit.file, edit.cell) != (site.file, site.cell) for edit in finding.edits)
        if content is None or site.line is None or others:
            return ()
        try:
            return content.changes(finding.edits) if content.line(site.line) == site.text else ()
        except ValueError:
            return ()

    def _code(self, site: Site) -> Content | None:
        """What a site's lines count in: a file, or a cell of one."""
        if site.file is None or site.cell is None:
            return None if site.file is None else self.get(site.file)
        _, cell = self._cell(site.file, site.cell)
        return None if cell is None else Content(cell.code.encode(), "utf-8")

    def _cell(self, file: str, number: int) -> tuple[Notebook | None, Cell | None]:
        if file not in self._notebooks:
            content = self.get(file)
            try:
                self._notebooks[file] = None if content is None else Notebook(file, content.bytes)
            except InputError:
                self._notebooks[file] = None
        notebook = self._notebooks[file]
        cells = () if notebook is None else notebook.cells
        return notebook, next((cell for cell in cells if cell.number == number), None)


def on_disk(file: str) -> bytes | None:
    """A file's bytes; None if it can't be read."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError):
        return None


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
