"""One text that an editor has: what the source rules say of it, in the terms of the Language Server Protocol."""

import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from lsprotocol.types import Diagnostic, DiagnosticSeverity, DiagnosticTag, Position, Range, TextEdit
from msgspec import Struct

from stridewise.findings import Finding, Severity
from stridewise.linter.files.discover import Found
from stridewise.linter.rules import UNUSED
from stridewise.linter.running.fixing import is_fixable
from stridewise.linter.running.run import Options, lint_text
from stridewise.report.content import Content
from stridewise.report.text import one_line, shorten
from stridewise.results.lint import LintRun

Units = Callable[[str], int]
"""How many units a text has, of those that the editor counts columns in: UTF-16 as a rule."""

_SEVERITIES: dict[Severity, DiagnosticSeverity] = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "note": DiagnosticSeverity.Information,
}
_NEWLINE = re.compile("\r\n|\r|\n")
_LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BYTE_ORDER_MARK = "\ufeff"
_TITLE_WIDTH = 80


class Fix(Struct, frozen=True):
    """Something to choose in the menu of a finding."""

    title: str
    diagnostic: Diagnostic
    edits: list[TextEdit]
    preferred: bool
    """Whether it may be made without a second look."""


class Document:
    """A text, linted as if it were what its file holds. Raises ValueError if no file could hold it."""

    def __init__(self, text: str, file: Found, units: Units) -> None:
        self._text = text
        self._file = file
        self._units = units
        self._bytes = _encoded(text)
        self._content = Content(self._bytes)
        self._run, _ = lint_text(self._bytes, file)
        self._diagnostics = [self._diagnostic(finding) for finding in self._run.findings]

    @property
    def run(self) -> LintRun:
        """What was found."""
        return self._run

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """One for each finding."""
        return self._diagnostics

    def fixes(self, where: Range) -> Iterator[Fix]:
        """What can be done about the findings that a range touches."""
        for finding, diagnostic in zip(self._run.findings, self._diagnostics, strict=True):
            if not _touch(diagnostic.range, where):
                continue
            if finding.edits:
                edits = [
                    TextEdit(Range(self._at(edit.span[0]), self._at(edit.span[1])), edit.replacement)
                    for edit in finding.edits
                ]
                yield Fix(self._title(finding), diagnostic, edits, is_fixable(finding, "safe"))
            comment = self._suppression(finding, diagnostic)
            if comment is not None:
                yield Fix(f"{finding.code}: ignore it on this line", diagnostic, [comment], preferred=False)

    @cached_property
    def all_safe_fixes(self) -> TextEdit | None:
        """One edit that makes all safe fixes; None if there are none."""
        if not any(is_fixable(finding, "safe") for finding in self._run.findings):
            return None
        _, after = lint_text(self._bytes, self._file, Options(fix="safe"))
        return None if after == self._bytes else self._changed(after.decode(_encoding(self._text)))

    @cached_property
    def _lines(self) -> list[str]:
        return _NEWLINE.split(self._text)

    def _diagnostic(self, finding: Finding) -> Diagnostic:
        return Diagnostic(
            range=self._range(finding),
            message="\n".join(filter(None, (finding.message, finding.advice))),
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            source="stridewise",
            tags=[DiagnosticTag.Unnecessary] if finding.code == UNUSED.code else None,
        )

    def _range(self, finding: Finding) -> Range:
        site = finding.site
        line, column = site.line or 1, site.column or 0
        end = self._column(site.end_line or line, site.end_column or column)
        return Range(self._column(line, column), end)

    def _column(self, line: int, column: int) -> Position:
        """Where a site's column is."""
        text = self._lines[line - 1].removeprefix(_BYTE_ORDER_MARK if line == 1 else "")
        return self._position(line, text.encode()[:column].decode())

    def _at(self, offset: int) -> Position:
        """Where an edit's offset is."""
        line, character = self._content.position(offset)
        return self._position(line, (self._content.line(line) or "")[: character - 1])

    def _position(self, line: int, before: str) -> Position:
        if line == 1 and self._text.startswith(_BYTE_ORDER_MARK):
            before = _BYTE_ORDER_MARK + before
        return Position(line - 1, self._units(before))

    def _end(self, line: int) -> Position:
        return Position(line - 1, self._units(self._lines[line - 1]))

    def _title(self, finding: Finding) -> str:
        """What a fix writes, if that is short, and how far it can be trusted."""
        what = f"fix {finding.title}"
        try:
            changes = self._content.changes(finding.edits)
        except ValueError:
            changes = ()
        if len(changes) == 1 and len(changes[0].new) == 1:
            what = shorten(one_line(changes[0].new[0].strip()), _TITLE_WIDTH)
        return f"{finding.code}: {what} ({finding.edits[0].safety} fix)"

    def _suppression(self, finding: Finding, diagnostic: Diagnostic) -> TextEdit | None:
        """A comment behind the last line of a finding; None if it would not be heard there, as in a string."""
        if finding.code == UNUSED.code:
            return None
        comment = f"  # stridewise: ignore[{finding.code}]"
        lines = _LINE.findall(self._text)
        last = diagnostic.range.end.line
        line = lines[last]
        bare = line.rstrip("\r\n")
        lines[last] = bare + comment + line[len(bare) :]
        run, _ = lint_text(_encoded("".join(lines)), self._file)
        before = {each.fingerprint for each in self._run.findings}
        after = {each.fingerprint for each in run.findings}
        if run.unread or not after < before or finding.fingerprint in after:
            return None
        end = self._end(last + 1)
        return TextEdit(Range(end, end), comment)

    def _changed(self, after: str) -> TextEdit:
        """One edit of the lines that differ."""
        old, new = _LINE.findall(self._text), _LINE.findall(after)
        first = _equal(old, new)
        rest = _equal(old[first:][::-1], new[first:][::-1])
        last = len(old) - rest
        end = Position(last, 0) if last < len(self._lines) else self._end(last)
        return TextEdit(Range(Position(first, 0), end), "".join(new[first : len(new) - rest]))


def _encoded(text: str) -> bytes:
    """A text as its file holds it. Raises ValueError if it can't."""
    try:
        return text.encode(_encoding(text))
    except LookupError as error:  # of codecs that are for no text, such as rot13
        raise ValueError(str(error)) from None


def _encoding(text: str) -> str:
    """The encoding that a text names, UTF-8 unless it does. Raises ValueError for one that is not known."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(_NEWLINE.sub("\n", text).encode()).readline)
    except SyntaxError as error:
        raise ValueError(str(error)) from None
    return "utf-8" if encoding == "utf-8-sig" else encoding  # the mark is a character of the text


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _touch(one: Range, other: Range) -> bool:
    return _key(one.start) <= _key(other.end) and _key(other.start) <= _key(one.end)


def _key(position: Position) -> tuple[int, int]:
    return position.line, position.character
