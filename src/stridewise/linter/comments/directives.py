"""Comments that leave findings out, where they stand and what they name."""

import bisect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from msgspec import Struct

from stridewise.source.file import SourceFile, Span

_MENTION = re.compile(rb"noqa|stridewise\s*:")
_OURS = re.compile(rb"stridewise\s*:|noqa\s*:[^\r\n]*\bsw\d")
_DIRECTIVE = re.compile(
    r"""(?<![`'"\w])\#\s*(?:
        (?P<noqa>noqa)(?![\w-])(?:\s*(?P<colon>:)\s*(?P<codes>[A-Z]+\d+(?![\w-])(?:[\s,]+[A-Z]+\d+(?![\w-]))*)?)?
        |stridewise\s*:\s*(?P<word>[\w-]+)(?:\s*\[(?P<listed>[^]#]*)\]|(?P<loose>\s*\[|[\s:=]*SW\d))?
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_NEWLINE = re.compile("\r\n|\r|\n")
_CODE = re.compile(r"[^\s,]+")
_BLANKS = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Directive(Struct, frozen=True):
    """One such comment, or the part of a comment that it is."""

    kind: Literal["noqa", "ignore", "skip-file", "mistake"]
    text: str
    span: Span
    """In bytes of the file; what follows in the same comment is no part of it."""
    comment: Span
    """All of the comment."""
    codes: tuple[tuple[str, Span], ...] | None
    """In upper case, with where each stands. None without a list: all of them."""
    line: int
    below: tuple[int, int] | None
    """The first and the last line of the statement that it stands above, or of its head."""

    def names(self, code: str) -> bool:
        """Whether it would leave out a finding with this code."""
        return self.codes is None or any(code.startswith(beginning) for beginning, _ in self.codes)


class Directives(Struct, frozen=True):
    """What a file's comments say."""

    found: tuple[Directive, ...]
    statements: tuple[tuple[int, int], ...]
    """The first and last lines of its statements, or of their heads, in order."""
    certain: bool
    """False if some were only guessed to be comments: `tokenize` could not read the file to its end."""

    def end(self, line: int) -> int:
        """The last line of the statement, or of its head, that holds a line."""
        at = bisect.bisect_left(self.statements, (line + 1, 0)) - 1
        return max(self.statements[at][1], line) if at >= 0 else line


def mentioned(content: bytes, ours: bool = False) -> bool:
    """Whether a file may hold such comments; with `ours`, some that name codes of stridewise."""
    folded = content.lower()  # to search that is far quicker than to search for any case
    if b"noqa" not in folded and b"stridewise" not in folded:
        return False
    return (_OURS if ours else _MENTION).search(folded) is not None


def directives_of(source: SourceFile) -> Directives:
    """Read the comments of a file. What stands in a string is none."""
    lines = _NEWLINE.split(source.text)
    comments: list[tuple[int, int, str]] = []
    statements: list[tuple[int, int]] = []
    certain, start = True, 0
    try:
        # Lines as `ast` counts them: a lone \r ends one too.
        for token in tokenize.generate_tokens(io.StringIO("".join(f"{line}\n" for line in lines)).readline):
            if token.type == tokenize.COMMENT:
                comments.append((*token.start, token.string))
            elif token.type == tokenize.NEWLINE:
                statements.append((start or token.start[0], token.start[0]))
                start = 0
            elif not start and token.type not in _BLANKS:
                start = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        certain = False
        read = max([0, *(line for line, _, _ in comments), *(last for _, last in statements)])
        comments += _guessed(lines, read)
    below = _Below(lines, statements)
    directives = [each for comment in comments for each in _parse(source, lines, below, *comment)]
    return Directives(tuple(directives), tuple(statements), certain)


def _guessed(lines: list[str], read: int) -> Iterator[tuple[int, int, str]]:
    """What looks like such a comment in the lines that were not read."""
    for number, line in enumerate(lines[read:], read + 1):
        match = _DIRECTIVE.search(line)
        if match:
            yield number, match.start(), line[match.start() :]


def _parse(
    source: SourceFile, lines: list[str], below: "_Below", line: int, column: int, comment: str
) -> Iterator[Directive]:
    comment = comment.rstrip()
    before = lines[line - 1][:column]
    start = source.offset(line, len(before.encode()))

    def span(begin: int, stop: int) -> Span:
        at = start + len(comment[:begin].encode(source.encoding))
        return at, at + len(comment[begin:stop].encode(source.encoding))

    for match in _DIRECTIVE.finditer(comment):
        kind = _kind(match, comment)
        if kind is None:
            continue
        group = "codes" if match["noqa"] else "listed"
        codes = None
        if match[group] is not None or match["colon"]:
            codes = tuple(
                (code[0].upper(), span(match.start(group) + code.start(), match.start(group) + code.end()))
                for code in _CODE.finditer(match[group] or "")
            )
        end = len(comment) if kind == "mistake" else match.end()
        end = match.start() + len(comment[match.start() : end].rstrip())
        yield Directive(
            kind=kind,
            text=comment[match.start() : end],
            span=span(match.start(), end),
            comment=span(0, len(comment)),
            codes=codes,
            line=line,
            below=below.of(line) if kind == "ignore" and not before.strip() else None,
        )


def _kind(match: re.Match[str], comment: str) -> Literal["noqa", "ignore", "skip-file", "mistake"] | None:
    """None for prose that only begins like a directive."""
    word = "noqa" if match["noqa"] else match["word"].lower()
    empty = match["listed"] is not None and not _CODE.search(match["listed"])
    if word == "ignore" and (match["loose"] or empty):
        return "mistake"
    if word in ("noqa", "ignore", "skip-file") and (word != "noqa" or match["noqa"]):
        return word  # type: ignore[return-value]
    return "mistake" if match.end() == len(comment) or match["loose"] else None


class _Below:
    """What comments on lines of their own stand above."""

    def __init__(self, lines: list[str], statements: list[tuple[int, int]]) -> None:
        self._lines, self._statements = lines, statements

    def of(self, line: int) -> tuple[int, int]:
        """The first and the last line of what a comment stands above."""
        at = bisect.bisect_left(self._statements, (line, 0))
        if at and self._statements[at - 1][1] > line:  # in the brackets of a statement
            return self._code[line], self._code[line]
        return (self._statements[at][0], self._last[at]) if at < len(self._statements) else (line, line)

    @cached_property
    def _code(self) -> list[int]:
        """For each line the next with code; the line itself, if there is none."""
        found = [*range(len(self._lines) + 1)]
        following = 0
        for line in range(len(self._lines), 0, -1):
            found[line] = following or line
            following = following if _is_blank(self._lines[line - 1]) else line
        return found

    @cached_property
    def _last(self) -> list[int]:
        """The last lines of statements: decorators belong to what they stand above."""
        found = [last for _, last in self._statements]
        for at in range(len(found) - 2, -1, -1):
            if self._lines[self._statements[at][0] - 1].lstrip().startswith("@"):
                found[at] = found[at + 1]
        return found


def _is_blank(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")
