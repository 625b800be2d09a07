"""Expressions of code objects, from the positions that Python keeps and the source that it read. No torch."""

import ast
import linecache
from functools import partial
from types import CodeType

from msgspec import Struct

from stridewise.recording.cells import timed
from stridewise.recording.filenames import public_place
from stridewise.recording.model import SiteRow

LONGEST = 2000
"""Characters of an expression that are kept."""


class _Span(Struct, frozen=True):
    line: int
    end_line: int
    column: int
    end_column: int


class Sources:
    """Finds the expression that an instruction of a code object belongs to."""

    def __init__(self) -> None:
        self.exact = True
        """False once a code object had no columns (`-X no_debug_ranges`)."""
        self._positions: dict[int, list[tuple[int | None, int | None, int | None, int | None]]] = {}
        self._calls: dict[str, dict[tuple[int, int], list[ast.Call]]] = {}

    def site(self, code: CodeType, lasti: int) -> SiteRow:
        """Where the instruction at byte `lasti` of a code object stands. Offsets in a line are UTF-8 bytes."""
        positions = self._positions.get(id(code))
        if positions is None:
            positions = self._positions[id(code)] = list(code.co_positions())
        at = lasti // 2
        line, end_line, column, end_column = (
            positions[at] if 0 <= at < len(positions) else (code.co_firstlineno, None, None, None)
        )
        below_time = timed(code)
        file = code.co_filename if below_time is None else below_time[0].name
        lines = linecache.getlines(file) if below_time is None else below_time[1]
        expression = None
        if line is not None and end_line is not None and column is not None and end_column is not None:
            span = self._whole_call(file, lines, _Span(line, end_line, column, end_column))
            line, end_line, column, end_column = span.line, span.end_line, span.column, span.end_column
            expression = _text(lines, span)
        else:
            self.exact = False
        place = partial(public_place, file) if below_time is None else below_time[0].place
        name, shown = place(line)
        return SiteRow(
            file=name,
            function=code.co_qualname,
            line=shown,
            end_line=place(end_line)[1],
            column=column,
            end_column=end_column,
            expression=expression,
            text=(_line(lines, line)[:LONGEST] or None) if line else None,
        )

    def _whole_call(self, file: str, lines: list[str], span: _Span) -> _Span:
        """Of a chain that is broken over lines Python keeps the last link only: the span from its receiver on."""
        before = _line(lines, span.line).encode()[: span.column].decode(errors="replace").rstrip()
        if not before.endswith("."):
            return span
        for call in self._calls_of(file, lines).get((span.end_line, span.end_column), []):
            assert call.end_lineno is not None
            assert call.end_col_offset is not None
            if isinstance(call.func, ast.Attribute) and (call.lineno, call.col_offset) < (span.line, span.column):
                return _Span(call.lineno, call.end_lineno, call.col_offset, call.end_col_offset)
        return span

    def _calls_of(self, file: str, lines: list[str]) -> dict[tuple[int, int], list[ast.Call]]:
        """Every call in a file, by where it ends; innermost last."""
        if file not in self._calls:
            found: dict[tuple[int, int], list[ast.Call]] = {}
            try:
                tree = ast.parse("".join(lines))
            except (SyntaxError, ValueError, RecursionError):  # a template, a notebook's cell, or no Python at all
                tree = ast.Module([], [])
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and node.end_lineno is not None and node.end_col_offset is not None:
                    found.setdefault((node.end_lineno, node.end_col_offset), []).append(node)
            self._calls[file] = found
        return self._calls[file]


def _text(lines: list[str], span: _Span) -> str | None:
    found = [_line(lines, number).encode() for number in range(span.line, span.end_line + 1)]
    found[-1] = found[-1][: span.end_column]
    found[0] = found[0][span.column :]
    return b"\n".join(found).decode(errors="replace")[:LONGEST] or None


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].rstrip("\n") if 1 <= number <= len(lines) else ""
