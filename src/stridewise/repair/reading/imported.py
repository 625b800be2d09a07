"""What names in a file mean, and how it can write a name of torch's."""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from stridewise.source.file import SourceFile


class Names:
    """The names that a file imports."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file

    def qualified(self, node: ast.expr) -> str | None:
        """What an expression such as `F.softmax` names: `torch.nn.functional.softmax`; None if nothing imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or self._is_rebound(node, node.id):
            return None
        bound = self._imported.get(node.id)
        return None if bound is None else ".".join([bound, *reversed(parts)])

    def spelling(self, qualified: str, at: ast.AST) -> str | None:
        """How the file writes a qualified name at some place, the shortest way; None if it imports nothing for it."""
        found = [
            (len(bound), name + qualified[len(bound) :])
            for name, bound in self._imported.items()
            if f"{qualified}.".startswith(f"{bound}.") and not self._is_rebound(at, name)
        ]
        return max(found, key=lambda each: (each[0], -len(each[1])))[1] if found else None

    def _is_rebound(self, at: ast.AST, name: str) -> bool:
        """Whether a function around a place gives the name another meaning."""
        function = self._file.function(at)
        while function is not None:
            if any(name == other for other in _bound_in(function)):
                return True
            function = self._file.function(function)
        return False

    @cached_property
    def _imported(self) -> dict[str, str]:
        return dict(_imports(self._file.tree.body))


def _imports(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The names that statements of a module import, each with what it stands for."""
    for statement in body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            for alias in statement.names:
                yield alias.asname or alias.name, f"{statement.module}.{alias.name}"
        elif isinstance(statement, ast.Try):
            yield from _imports(statement.body)


def _bound_in(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
