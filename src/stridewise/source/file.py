"""A source file that may be edited: its bytes, its tree, and the way from one to the other. No torch."""

import ast
import bisect
import hashlib
import io
import re
import threading
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from stridewise.errors import InputError
from stridewise.findings import Site

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FILTERS = threading.RLock()
_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FORMATTED = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))


class SourceFile:
    """One file, as it read when it was opened. Spans are byte offsets in it, half open.

    Content that is given does not come from the disk, as a notebook's cells do not. Raises InputError if it can't be
    read, decoded or parsed.
    """

    def __init__(self, path: Path, name: str, content: bytes | None = None, *, above: int = 0) -> None:
        self.path = path
        self.name = name
        """As sites and edits name it: without the parts that tell whose machine it lies on."""
        self.on_disk = content is None
        self.above = above
        """How many lines of a cell, which are blank in its content, stand above the code that ran."""
        try:
            self.content = path.read_bytes() if content is None else content
            # Python counts a lone \r as a line's end before it looks for the declaration; this function does not.
            encoding, _ = tokenize.detect_encoding(io.BytesIO(_NEWLINE.sub(b"\n", self.content)).readline)
            self.encoding = "utf-8" if encoding == "utf-8-sig" else encoding
            """What text between two offsets is encoded in; a byte order mark is no part of it."""
            self.text = self.content[self._start :].decode(self.encoding)
            with quiet():
                self.tree = ast.parse(self.content)
        except SyntaxError as error:
            at = f"{name}:{error.lineno}" if error.lineno else name
            raise InputError(f"{at} can't be read as Python: {error.msg}.") from None
        except OSError as error:
            raise InputError(f"{name} can't be read: {error.strerror or error}.") from None
        except (ValueError, LookupError) as error:
            raise InputError(f"{name} can't be read as Python: {error}.") from None
        except (RecursionError, MemoryError):
            raise InputError(f"{name} can't be read as Python: it is nested too deeply.") from None
        if not self._maps_line_by_line():
            raise InputError(f"{name} can't be edited: its encoding, {self.encoding}, has no fixed place for a line.")
        self.sha256 = hashlib.sha256(self.content).hexdigest()

    def compile(self) -> None:
        """Raise SyntaxError, or ValueError, if it parses but is no program: `return` outside a function."""
        with quiet():
            compile(self.content, self.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

    @cached_property
    def newline(self) -> str:
        """What ends its first line."""
        found = _NEWLINE.search(self.content)
        return found[0].decode() if found else "\n"

    def newline_at(self, end: int) -> str:
        """What ends the line that ends there; the file's, if nothing does."""
        found = _NEWLINE.match(self.content, end)
        return found[0].decode() if found else self.newline

    def line_at(self, offset: int) -> Span:
        """The bytes of the line that an offset lies in, without what ends it."""
        return self._lines[self._number(offset)]

    def is_shown(self, statement: ast.stmt) -> bool:
        """Whether a statement at module level is the last one, of the file or before a line that begins with `# %%`.

        Notebooks, and editors that take such lines for the borders of cells, show the value of the last one.
        """
        assert statement.end_lineno is not None
        for start, end in self._lines[statement.end_lineno :]:
            text = self.content[start:end].strip()
            if text.startswith(b"# %%"):
                return True
            if text and not text.startswith(b"#"):
                return False
        return True

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The bytes that a node covers, without its decorators.

        Raises ValueError for what stands in an f-string: Python 3.11 does not tell where that is.
        """
        if self.in_fstring(node):
            raise ValueError("the place of an expression in an f-string is not known")
        return self.place(node)

    def place(self, node: ast.expr | ast.stmt) -> Span:
        """The bytes that a node covers, for one that is known to stand in no f-string."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def begin(self, statement: ast.stmt) -> int:
        """Where a statement begins, with its decorators."""
        start, _ = self.span(statement)
        decorators = getattr(statement, "decorator_list", None)
        return self.content.rindex(b"@", 0, self.span(decorators[0])[0]) if decorators else start

    def offset(self, line: int, column: int) -> int:
        """The offset of a UTF-8 column, as `ast` counts them, in a line that counts from 1."""
        start, end = self._lines[line - 1]
        if self.encoding == "utf-8":
            return start + column
        before = self.decode((start, end)).encode()[:column].decode()
        return start + len(before.encode(self.encoding))

    def line_number(self, offset: int) -> int:
        """The number of the line that an offset lies in, counted from 1."""
        return self._number(offset) + 1

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the UTF-8 column of an offset."""
        number = self._number(offset)
        return number + 1, len(self.decode((self._lines[number][0], offset)).encode())

    def decode(self, span: Span) -> str:
        """The text between two offsets."""
        start, end = span
        return self.content[start:end].decode(self.encoding)

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, as it stands there."""
        return self.decode(self.span(node))

    def expression(self, site: Site) -> ast.expr | None:
        """The expression at a site; None unless one covers exactly that, outside of f-strings."""
        if site.line is None or site.column is None:
            return None
        return self._expressions.get((site.line, site.column, site.end_line, site.end_column))

    def expression_in(self, span: Span) -> ast.expr | None:
        """The expression that covers a span, but for blanks, comments and parentheses around it."""
        exact = self._expressions.get((*self.position(span[0]), *self.position(span[1])))
        if exact is not None:
            return exact
        try:
            with quiet():
                node = ast.parse(f"({self.decode(span)}\n)", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        line, column = self.position(span[0])
        column -= 1  # of the parenthesis before the first line
        return self._expressions.get(
            (
                node.lineno + line - 1,
                node.col_offset + (column if node.lineno == 1 else 0),
                node.end_lineno + line - 1,
                node.end_col_offset + (column if node.end_lineno == 1 else 0),
            )
        )

    def in_fstring(self, node: ast.AST) -> bool:
        """Whether a node is a part of an f-string."""
        return node in self._formatted

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

    @property
    def _start(self) -> int:
        return len(_BYTE_ORDER_MARK) if self.content.startswith(_BYTE_ORDER_MARK) else 0

    def _maps_line_by_line(self) -> bool:
        """Whether each line's bytes stand for its text by themselves; else an offset in one of them means nothing."""
        if self.encoding == "utf-8":
            return True
        try:
            same = self.text.encode(self.encoding) == self.content
            return same and [self.decode(line) for line in self._lines] == re.split("\r\n|\r|\n", self.text)
        except ValueError:
            return False

    def _number(self, offset: int) -> int:
        return max(bisect.bisect_right(self._starts, offset) - 1, 0)

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self._lines]

    @cached_property
    def _lines(self) -> list[Span]:
        start = self._start
        lines = []
        for found in _NEWLINE.finditer(self.content):
            lines.append((start, found.start()))
            start = found.end()
        return [*lines, (start, len(self.content))]

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _formatted(self) -> frozenset[ast.AST]:
        strings = [node for node in ast.walk(self.tree) if isinstance(node, _FORMATTED)]
        parts = {part for string in strings for part in ast.walk(string) if isinstance(part, (ast.expr, ast.keyword))}
        # Strings in the format of others are parts; the outermost are not.
        return frozenset(parts.difference(node for node in strings if not self._inside_formatted(node)))

    def _inside_formatted(self, node: ast.AST) -> bool:
        above = self._parents.get(node)
        while above is not None and not isinstance(above, (ast.stmt, *_FORMATTED)):
            above = self._parents.get(above)
        return isinstance(above, _FORMATTED)

    @cached_property
    def _expressions(self) -> dict[tuple[int | None, ...], ast.expr]:
        found: dict[tuple[int | None, ...], ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and not self.in_fstring(node):
                key = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
                found.setdefault(key, node)  # the outermost: a statement's expression, not what it wraps
        return found


@contextmanager
def quiet() -> Iterator[None]:
    """Parse without warnings of what the source says (`"\\d"`): where warnings are errors they would be raised."""
    # The filters are the whole process's: two threads that save and restore them at once would leave ours in place.
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _holds(part: ast.AST, node: ast.AST) -> bool:
    return any(child is node for child in ast.walk(part))
