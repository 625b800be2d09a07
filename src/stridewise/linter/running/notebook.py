"""The cells of a notebook as one module, so that what one imports is known in the next; and what is said of it."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from stridewise.errors import InputError
from stridewise.findings import Edit, Finding, Site
from stridewise.linter.running.cache import digest_of
from stridewise.linter.running.fixing import Fixed, Unsettled
from stridewise.results.lint import Unread
from stridewise.source.file import SourceFile
from stridewise.source.ipython import as_python
from stridewise.source.notebook import Notebook

if TYPE_CHECKING:
    from stridewise.linter.running.checking import Outcome

_HEAD = "# coding: utf-8\n"
"""So that no cell says what the encoding is."""
_NEWLINE = re.compile(rb"\r\n|\r|\n")


class _Place(Struct, frozen=True):
    """Where a cell's code is in the module."""

    number: int
    line: int
    """Its first one."""
    start: int
    end: int


class Cells:
    """The code cells of a notebook. Raises InputError if there is none that can be read."""

    def __init__(self, path: Path, name: str, content: bytes | None) -> None:
        try:
            self._content = path.read_bytes() if content is None else content
        except OSError as error:
            raise InputError(f"{name} can't be read: {error.strerror or error}.") from None
        self._name = name
        self._notebook = Notebook(name, self._content)
        self._unread: list[Unread] = []
        self._code = self._as_python()
        self._mark = "# %%"
        while any(self._mark in code for code in self._code.values()):
            self._mark += "%"
        parts = (f"{self._mark} {number}\n{code}\n" for number, code in self._code.items())
        self.source = SourceFile(path, name, "".join((_HEAD, *parts)).encode())
        """All of them that are Python, each below a line of its own."""

    def told(self, outcome: "Outcome") -> "Outcome":
        """What came of the module, said of the notebook. Raises Unsettled for fixes that it can't take."""
        if not self._notebook.is_python:
            return replace(outcome, digest=b"", lines=0)
        fixed, content = outcome.fixed, self._content
        if fixed is not None:
            content = self._rewritten(fixed)
            fixed = Fixed(self._content, content, fixed.fixes)
        module = self.source.content if outcome.fixed is None else outcome.fixed.after
        places = self._places(module)
        return replace(
            outcome,
            digest=digest_of(content),
            lines=sum(len(module[place.start : place.end].splitlines()) for place in places),
            findings=tuple(_of_cells(finding, places) for finding in outcome.findings),
            unread=(*outcome.unread, *self._unread),
            fixed=fixed,
        )

    def _as_python(self) -> dict[int, str]:
        """The cells' code by their numbers, without those that are something else, or broken."""
        found: dict[int, str] = {}
        for cell in self._notebook.cells:
            try:
                code = as_python(cell.code)
            except SyntaxError as error:
                self._skip(cell.number, error.lineno, error.msg)
            except ValueError as error:
                self._skip(cell.number, None, str(error))
            except (RecursionError, MemoryError):
                self._skip(cell.number, None, "it is nested too deeply")
            else:
                if code is not None:
                    found[cell.number] = code
        return found

    def _skip(self, number: int, line: int | None, why: str) -> None:
        where = Site(self._name, line, cell=number).where
        self._unread.append(Unread(self._name, line, f"{where} can't be read as Python: {why}.", number))

    def _places(self, module: bytes) -> list[_Place]:
        found: list[_Place] = []
        heads = list(re.finditer(rb"^%s (\d+)\n" % self._mark.encode(), module, re.MULTILINE))
        ends = [*(head.start() for head in heads[1:]), len(module)]
        line, at = 1, 0
        for head, end in zip(heads, ends, strict=False):
            line += len(_NEWLINE.findall(module, at, head.end()))
            at = head.end()
            found.append(_Place(int(head[1]), line, at, max(end - 1, at)))
        return found

    def _rewritten(self, fixed: Fixed) -> bytes:
        """The notebook with what the fixes make of the module."""
        places = self._places(fixed.after)
        if [place.number for place in places] != list(self._code):
            raise Unsettled("its fixes go beyond a cell, a defect of stridewise: please report it")
        after = {place.number: fixed.after[place.start : place.end].decode() for place in places}
        return self._notebook.with_code(
            {
                cell.number: _shown(cell.code, self._code[cell.number], after[cell.number])
                for cell in self._notebook.cells
                if cell.number in self._code and after[cell.number] != self._code[cell.number]
            }
        )


def _shown(code: str, before: str, after: str) -> str:
    """A cell's code as fixes make it, with the lines of IPython's own that were hidden from them."""
    real, old, new = (text.split("\n") for text in (code, before, after))
    lines: list[str] = []
    for what, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            lines += real[start:end]
        elif old[start:end] != real[start:end]:
            raise Unsettled("its fixes touch lines of IPython's own")
        else:
            lines += new[first:last]
    return "\n".join(lines)


def _of_cells(finding: Finding, places: Sequence[_Place]) -> Finding:
    """A finding with places in cells; without a fix that is not in the cells."""
    edits = [_edit_of(edit, places) for edit in finding.edits]
    return replace(
        finding,
        site=_site_of(finding.site, places),
        origin=None if finding.origin is None else _site_of(finding.origin, places),
        edits=tuple(edit for edit in edits if edit is not None) if None not in edits else (),
    )


def _site_of(site: Site, places: Sequence[_Place]) -> Site:
    if site.line is None:
        return site
    place = places[bisect_right(places, site.line, key=lambda each: each.line) - 1]
    end = None if site.end_line is None else site.end_line - place.line + 1
    return replace(site, cell=place.number, line=site.line - place.line + 1, end_line=end)


def _edit_of(edit: Edit, places: Sequence[_Place]) -> Edit | None:
    """An edit in its cell; None if it is in none, or in several."""
    at = bisect_right(places, edit.span[0], key=lambda each: each.start) - 1
    if at < 0:
        return None
    place = places[at]
    start, end = edit.span[0] - place.start, edit.span[1] - place.start
    size = place.end - place.start
    if start > size or end > size + 1:  # one that deletes the last line takes what ends it as well
        return None
    return replace(edit, span=(start, min(end, size)), cell=place.number)
