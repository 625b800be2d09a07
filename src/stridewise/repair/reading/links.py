"""Values that a function hands from statement to statement through names that nothing else reads."""

import ast
from collections.abc import Iterator, Sequence

from stridewise.repair.reading.removal import block
from stridewise.source.file import Function, SourceFile


class Links:
    """Follows a value back from the statement that ends a computation, through the statements of the same block.

    A step is an assignment to one name, or an assignment under an `if` without an `else`. What was gone through is in
    `used`: those statements can be removed if what they compute is computed at the end.
    """

    def __init__(self, file: SourceFile, function: Function, end: ast.stmt) -> None:
        self.file, self.function, self.end = file, function, end
        self.body = block(file, end)
        self.place = next((at for at, each in enumerate(self.body) if each is end), 0)
        self.used: list[ast.stmt] = []
        self.reads: list[ast.Name] = []
        """The mentions of names that were followed."""

    def step(self, node: ast.expr) -> tuple[ast.stmt, ast.expr | None] | None:
        """The statement that gave a name its value, and that value; None for what is no name, or has it from elsewhere.

        The value is None if the statement is no plain assignment: an augmented one, or an `if` that holds one.
        """
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return None
        for at in range(self.place - 1, -1, -1):
            statement = self.body[at]
            if any(each == node.id for each in _stored(statement)):
                self.place = at
                self.reads.append(node)
                self.used.append(statement)
                return statement, _value(statement, node.id)
        return None

    def save(self) -> tuple[int, int, int]:
        """Where it stands, to come back to."""
        return self.place, len(self.used), len(self.reads)

    def restore(self, saved: tuple[int, int, int]) -> None:
        """Go back to where it stood."""
        self.place, used, reads = saved
        del self.used[used:], self.reads[reads:]

    def can_move(self, kept: Sequence[ast.expr]) -> bool:
        """Whether the statements gone through can be left out, and `kept`, parts of them, be evaluated at the end.

        Nothing else may read the names, and nothing in between may change what `kept` reads.
        """
        names = {read.id for read in self.reads}
        steps = [*self.used, self.end]
        inside = {id(node) for statement in steps for node in ast.walk(statement)}
        for node in ast.walk(self.function):
            if isinstance(node, ast.Global | ast.Nonlocal) and names & {*node.names}:
                return False
            if isinstance(node, ast.Name) and node.id in names and not isinstance(node.ctx, ast.Store):
                chained = any(node is read for read in self.reads)
                if not chained and (id(node) in inside or self._may_read(node)):
                    return False
        read = {node.id for part in kept for node in ast.walk(part) if isinstance(node, ast.Name)}
        if read & names:
            return False
        first = min(self.body.index(statement) for statement in self.used) if self.used else self.place
        between = self.body[first : self.body.index(self.end)]
        others = [statement for statement in between if not any(statement is each for each in self.used)]
        return not any(_may_change(statement, read) for statement in others)

    def _may_read(self, node: ast.Name) -> bool:
        """Whether a mention outside of the steps may read a value of theirs: not if it is bound anew before."""
        statement = self.file.statement(node)
        while statement not in self.body:
            parent = self.file.parent(statement)
            if not isinstance(parent, ast.stmt):
                return True
            statement = parent
        at, end = self.body.index(statement), self.body.index(self.end)
        if self.file.loops(self.end):
            return True
        if at > end:
            rebound = (self._binds(each, node.id) for each in self.body[end:at])
            return not any(rebound)
        return at >= min(self.body.index(each) for each in self.used)

    def _binds(self, statement: ast.stmt, name: str) -> bool:
        return isinstance(statement, ast.Assign) and name in _stored(statement)


def _stored(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    }


def _value(statement: ast.stmt, name: str) -> ast.expr | None:
    """What a plain assignment to that name gives it."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name) and target.id == name:
            return statement.value
    return None


def _may_change(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement may change what names stand for, or what is in them."""
    return any(_changes(node, names) for node in ast.walk(statement)) or isinstance(
        statement, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.FunctionDef | ast.With
    )


def _changes(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return bool(names & set(_names(node)))
    if isinstance(node, ast.Call):
        in_place = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
        return in_place and bool(names & set(_names(node.func)))
    return isinstance(node, ast.AugAssign) and bool(names & set(_names(node.target)))


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
