"""A parsed file as rules see it: its nodes by name, what stands around them, and what is known of their values."""

import ast
import functools
import io
import re
import tokenize
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from stridewise.findings import Site
from stridewise.linter.facts import values
from stridewise.linter.facts.value import UNKNOWN, Value
from stridewise.linter.names import Names, last_name, own_names
from stridewise.source.file import Function, SourceFile, Span

if TYPE_CHECKING:
    from stridewise.linter.seen import SeenFile

Scope = Function | ast.Lambda | ast.ClassDef | ast.Module
_FORMATTED = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CLASS = re.compile(rb"^[ \t]*class\s+(\w+)", re.MULTILINE)
Node = TypeVar("Node", bound=ast.AST)


class Module:
    """One file. Only nodes on lines with one of the words are indexed: a walk over all others would take the most time.

    What stands in an f-string is left out: Python 3.11 does not tell where that is.
    """

    def __init__(self, source: SourceFile, words: Collection[str], seen: "SeenFile | None" = None) -> None:
        self.source = source
        self.seen = seen
        """What a recording saw of it, if there is one."""
        self._lines = _lines_with(source, words)
        self._parents: dict[ast.AST, ast.AST] = {}
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._attributes: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._others: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._values: dict[Scope, dict[ast.expr, Value]] = {}
        self._rebound: dict[str, bool] = {}
        self._own: dict[ast.AST, set[str]] = {}
        self._index()

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of functions and methods with one of these last names."""
        for name in names:
            yield from self._calls.get(name, ())

    def attributes(self, *names: str) -> Iterator[ast.Attribute]:
        """The attributes of these names, called or not."""
        for name in names:
            yield from self._attributes.get(name, ())

    def nodes(self, *types: type[Node]) -> Iterator[Node]:
        """The indexed nodes of exactly these types."""
        for kind in types:
            yield from self._others.get(kind, ())  # type: ignore[misc]

    @cached_property
    def names(self) -> Names:
        """What its names stand for, by its imports."""
        return Names(self.nodes(ast.Import), self.nodes(ast.ImportFrom))

    def name(self, node: ast.AST, scope: Scope | None = None) -> str | None:
        """The full name of a function or a constant by the imports: `torch.nn.functional.pad`; None if it has none.

        Nor has it one where a function around it has a parameter or a variable of its first name. Of a node that is
        not indexed that is looked for only if its scope is given.
        """
        found = self.names.of(node)
        return None if found is None or self._is_own(node, scope) else found

    @cached_property
    def classes(self) -> frozenset[str]:
        """The names of the classes that are defined in it."""
        return frozenset(name.decode(self.source.encoding) for name in _CLASS.findall(self.source.content))

    def value(self, node: ast.expr, scope: Scope | None = None) -> Value:
        """What is known of the value of an expression, where it stands. A node that is not indexed needs its scope."""
        scope = scope or self.scope(node)
        if scope not in self._values:
            self._values[scope] = values(self, scope)
        return self._values[scope].get(node, UNKNOWN)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node stands in; for one that is not indexed, such as a value's origin, the whole tree is walked."""
        parent = self._parents.get(node)
        return self.source.parent(node) if parent is None and node is not self.source.tree else parent

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, innermost first."""
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node belongs to, or is."""
        return node if isinstance(node, ast.stmt) else next(at for at in self.above(node) if isinstance(at, ast.stmt))

    def scope(self, node: ast.AST) -> Scope:
        """The function, lambda, class or module in which a node is evaluated; lambdas belong to what is around them."""
        below = node
        for above in self.above(node):
            # What is no statement stands in its decorators, defaults, annotations or bases.
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and isinstance(below, ast.stmt):
                return above
            below = above
        return self.source.tree

    def function(self, node: ast.AST) -> Function | None:
        """The function that a node stands in, lambdas and comprehensions not counted; None at class or module level."""
        scope = self.scope(node)
        return scope if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method a function is."""
        above = self.parent(function)
        return above if isinstance(above, ast.ClassDef) else None

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node on one line, without comments, for messages."""
        text = self.source.decode(self._place(node))
        return " ".join((_without_comments(text) if "#" in text else text).split())

    def site(self, node: ast.expr | ast.stmt) -> Site:
        """Where a node stands."""
        start, end = self._place(node)
        line, column = self.source.position(start)
        end_line, end_column = self.source.position(end)
        return Site(
            file=self.source.name,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
            function=self._qualified(node),
            expression=self.source.decode((start, end)),
            text=self.source.decode(self.source.line_at(start)),
        )

    def _place(self, node: ast.expr | ast.stmt) -> Span:
        # An indexed node stands in no f-string: to look for those takes a walk over the whole tree.
        return self.source.place(node) if node in self._parents else self.source.span(node)

    def _is_own(self, node: ast.AST, scope: Scope | None) -> bool:
        """Whether the first part of a name is a function's own, rather than the module's."""
        while isinstance(node, ast.Attribute):
            node = node.value
        name = node.id if isinstance(node, ast.Name) else ""
        if name not in self._rebound:  # a look at the bytes is quick, and nearly always enough
            self._rebound[name] = _binding(name).search(self.source.content) is not None
        if not self._rebound[name]:
            return False
        start = node if scope is None else scope
        return start in self._parents and self.is_rebound(name, start)

    def is_rebound(self, name: str, node: ast.AST) -> bool:
        """Whether a function around a node has a parameter or a variable of a name."""
        around = (node, *self.above(node))
        return any(name in self._own_names(each) for each in around if isinstance(each, _FUNCTIONS))

    def _own_names(self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
        if function not in self._own:
            self._own[function] = own_names(function)
        return self._own[function]

    def _qualified(self, node: ast.AST) -> str | None:
        """The dotted name of the function or class around a node."""
        around = [*self.above(node)]
        names = [
            each.name for each in around if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
        return ".".join(reversed(names)) or None

    def _index(self) -> None:
        waiting: list[ast.AST] = [self.source.tree]
        while waiting:
            node = waiting.pop()
            children = []
            for child in ast.iter_child_nodes(node):
                if not self._has_word(child):
                    continue
                self._parents[child] = node
                children.append(child)
                if isinstance(child, ast.Call):
                    self._calls[last_name(child.func)].append(child)
                elif isinstance(child, ast.Attribute):
                    self._attributes[child.attr].append(child)
                self._others[type(child)].append(child)
            waiting += reversed(children)

    def _has_word(self, node: ast.AST) -> bool:
        if isinstance(node, _FORMATTED):
            return False
        line = getattr(node, "lineno", None)
        if line is None:
            return True  # no place of its own: what is in it has one
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            line = min(line, *(decorator.lineno for decorator in decorators))
        at = bisect_left(self._lines, line)
        return at < len(self._lines) and self._lines[at] <= node.end_lineno  # type: ignore[attr-defined]


def pattern(words: Iterable[str]) -> re.Pattern[bytes]:
    """What finds any of some words in the bytes of a file."""
    return re.compile(rb"\b(?:%s)\b" % b"|".join(re.escape(word.encode()) for word in sorted({*words, "import"})))


def _without_comments(text: str) -> str:
    """The text of an expression or a statement without the comments in it."""
    lines = [*io.StringIO("(" + text.replace("\r\n", "\n").replace("\r", "\n") + "\n)")]
    try:
        tokens = [*tokenize.generate_tokens(iter([*lines, ""]).__next__)]
    except (tokenize.TokenError, SyntaxError):
        return text
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    return "".join(lines)[1:-2]


@functools.cache
def _binding(name: str) -> re.Pattern[bytes]:
    """What finds any place where a name may be bound, other than by an import, and some others."""
    word = re.escape(name.encode())
    return re.compile(rb"%s(?<![\w.]%s)\s*(?:[=,:)\](]|in\b)" % (word, word))


_patterns: dict[frozenset[str], re.Pattern[bytes]] = {}


def _lines_with(source: SourceFile, words: Collection[str]) -> list[int]:
    """The numbers of the lines in which one of the words stands, ascending."""
    wanted = frozenset(words)
    if wanted not in _patterns:
        _patterns[wanted] = pattern(wanted)
    lines: list[int] = []
    for match in _patterns[wanted].finditer(source.content):
        line = source.line_number(match.start())
        if not lines or lines[-1] != line:
            lines.append(line)
    return lines
