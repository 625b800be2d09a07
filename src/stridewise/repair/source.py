"""A source file that may be edited: its bytes, its tree, and the way from one to the other. No torch."""

import ast
import hashlib
import io
import re
import tokenize
from functools import cached_property
from pathlib import Path

from stridewise.errors import InputError
from stridewise.findings import Site

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_NEWLINE = re.compile(rb"\r\n|\r|\n")


class SourceFile:
    """One file, as it read when it was opened. Spans are byte offsets in it, half open.

    Raises InputError if it can't be read, decoded or parsed.
    """

    def __init__(self, path: Path, name: str, content: bytes | None = None) -> None:
        self.path = path
        self.name = name
        """As sites and edits name it: without the parts that tell whose machine it lies on."""
        try:
            self.content = path.read_bytes() if content is None else content
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(self.content).readline)
            self.text = self.content.decode(self.encoding)
            self.tree = ast.parse(self.content)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise InputError(f"{name} can't be read as Python: {error}.") from None
        self.sha256 = hashlib.sha256(self.content).hexdigest()

    @cached_property
    def newline(self) -> str:
        """What ends its first line."""
        found = _NEWLINE.search(self.content)
        return found[0].decode() if found else "\n"

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The bytes that a node covers."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def offset(self, line: int, column: int) -> int:
        """The offset of a UTF-8 column, as `ast` counts them, in a line that counts from 1."""
        start, end = self._lines[line - 1]
        if self.encoding in ("utf-8", "utf-8-sig"):
            return start + column
        before = self.content[start:end].decode(self.encoding).encode()[:column].decode()
        return start + len(before.encode(self.encoding))

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, as it stands there."""
        start, end = self.span(node)
        return self.content[start:end].decode(self.encoding)

    def expression(self, site: Site) -> ast.expr | None:
        """The expression at a site; None unless one covers exactly that."""
        if site.line is None or site.column is None:
            return None
        return self._expressions.get((site.line, site.column, site.end_line, site.end_column))

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node stands in."""
        return self._parents.get(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node belongs to, or is."""
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """The function that a node stands in; None at a module's or class's level, and in a lambda."""
        above = self._parents.get(node)
        while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(above, (ast.Lambda, ast.ClassDef)):
                return None
            above = self._parents.get(above)
        return above

    def loops(self, node: ast.AST) -> list[ast.For | ast.While]:
        """The loops of its function whose bodies hold a node, innermost first."""
        found: list[ast.For | ast.While] = []
        above = self._parents.get(node)
        while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if isinstance(above, (ast.For, ast.While)) and any(_holds(part, node) for part in above.body):
                found.append(above)
            above = self._parents.get(above)
        return found

    @cached_property
    def _lines(self) -> list[Span]:
        start = 3 if self.encoding == "utf-8-sig" else 0
        lines = []
        for found in _NEWLINE.finditer(self.content):
            lines.append((start, found.start()))
            start = found.end()
        return [*lines, (start, len(self.content))]

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _expressions(self) -> dict[tuple[int | None, ...], ast.expr]:
        found: dict[tuple[int | None, ...], ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                key = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
                found.setdefault(key, node)  # the outermost: a statement's expression, not what it wraps
        return found


def _holds(part: ast.AST, node: ast.AST) -> bool:
    return any(child is node for child in ast.walk(part))
