"""Whether two syntax trees are the same, but for what some edits replaced. No torch."""

import ast
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from stridewise.source.file import SourceFile, Span


class Region(Struct, frozen=True):
    """The bytes that an edit covers, and those that stand in their place afterwards."""

    before: Span
    after: Span


class _Marks(Struct):
    """Which nodes of two trees belong to which edit."""

    old: dict[ast.AST, int]
    new: dict[ast.AST, int]
    kept: set[int]
    """Edits that have something on both sides: it must stand in the same place."""


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees are equal, wherever they stand: what `ast.dump` says, without its recursion."""
    return _differs(one, other, _Marks({}, {}, set())) is None


def difference(before: SourceFile, after: SourceFile, regions: Sequence[Region]) -> int | None:
    """The first line of a file that reads otherwise in another beyond what lies in the regions; None if none does."""
    marks = _Marks({}, {}, set())
    olds, news = _Statements(before), _Statements(after)
    for number, region in enumerate(regions):
        old, new = before.expression_in(region.before), after.expression_in(region.after)
        if old is not None and new is not None and _is_value(old) and _is_value(new):
            marks.old[old] = marks.new[new] = number
            marks.kept.add(number)
            continue
        removed, added = list(olds.within(region.before)), list(news.within(region.after))
        marks.old.update(dict.fromkeys(removed, number))
        marks.new.update(dict.fromkeys(added, number))
        if removed and added:
            marks.kept.add(number)
    return _differs(before.tree, after.tree, marks)


def _is_value(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


class _Statements:
    """The statements of a file by where they begin."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file

    def within(self, region: Span) -> Iterator[ast.stmt]:
        """The outermost statements that lie wholly in a region."""
        start, end = region
        for at in range(bisect_left(self._places, (start,)), len(self._places) if start < end else 0):
            begin, stop, number = self._places[at]
            if begin >= end:
                return
            if start <= begin and stop <= end:
                yield self._all[number]
                start = stop  # what is in it is passed over

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """Begin, end and number of each, in the order of the source."""
        spans = ((self._file.begin(each), self._file.span(each)[1], at) for at, each in enumerate(self._all))
        return sorted(spans)  # a statement that holds others begins before them

    @cached_property
    def _all(self) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        bodies: list[ast.AST] = [self._file.tree]
        while bodies:
            for child in ast.iter_child_nodes(bodies.pop()):
                if isinstance(child, ast.stmt):
                    found.append(child)
                if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                    bodies.append(child)
        return found


def _differs(old: ast.AST, new: ast.AST, marks: _Marks) -> int | None:
    """The line of the first node that is another, in the old tree. Nodes that belong to the same edit are equal."""
    pairs: list[tuple[Any, Any, int]] = [(old, new, 1)]
    while pairs:
        one, other, line = pairs.pop()
        line = getattr(one, "lineno", line)
        if isinstance(one, list) and isinstance(other, list):
            ones, others = _unmarked(one, marks.old, marks.kept), _unmarked(other, marks.new, marks.kept)
            if len(ones) != len(others):
                return next((item.lineno for item in ones if hasattr(item, "lineno")), line)
            pairs += [(*pair, line) for pair in reversed(list(zip(ones, others, strict=True)))]
        elif isinstance(one, ast.AST) and isinstance(other, ast.AST):
            edit = marks.old.get(one)
            if edit != marks.new.get(other) or (edit is None and type(one) is not type(other)):
                return line
            if edit is None:
                pairs += [(getattr(one, name, None), getattr(other, name, None), line) for name in one._fields[::-1]]
        elif type(one) is not type(other) or repr(one) != repr(other):
            return line
    return None


def _unmarked(nodes: list[Any], marks: Mapping[ast.AST, int], kept: set[int]) -> list[Any]:
    """The items of a list, without the statements that an edit put in or took out, or with one for all of them."""
    found: list[Any] = []
    last: int | None = None
    for node in nodes:
        edit = marks.get(node) if isinstance(node, ast.stmt) else None
        if edit is None:
            found.append(node)
        elif edit in kept and edit != last:
            found.append(node)  # stands for all; it carries the mark that is compared
        last = edit
    return found
