"""Where in a function a line could stand so that it runs once for all of some expressions."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from stridewise.repair.reading.names import bindings, is_local, parameters
from stridewise.repair.reading.removal import block
from stridewise.source.file import Function, SourceFile


class Anchor(Struct, frozen=True):
    """The statement to put a line before."""

    statement: ast.stmt
    leaves_loop: bool
    """It stands outside of a loop that the expressions stand in."""


def anchor_of(
    file: SourceFile, function: Function, nodes: Sequence[ast.expr], names: Iterable[str], text: str
) -> Anchor | None:
    """The outermost place before some expressions at which all `names` hold what they hold there.

    None if there is none: a name may be bound in between, or not be bound yet, or what the expressions share (`text`)
    is looked at first: `if mask is not None`.
    """
    own = [name for name in names if is_local(function, name)]
    statement = _shared(file, function, nodes)
    leaves_loop = False
    for loop in file.loops(statement):
        if any(any(bindings([loop], name)) for name in own):
            break
        statement, leaves_loop = loop, True
    region = _until(file, statement, nodes)
    kept = all(not any(_disturbs(file, region, nodes, at) for at in bindings(region, name)) for name in own)
    bound = all(_is_bound(file, function, statement, name) for name in own)
    asked = any(_is_asked_for(file, node, statement, text) for node in nodes)
    return Anchor(statement, leaves_loop) if kept and bound and not asked else None


def _shared(file: SourceFile, function: Function, nodes: Sequence[ast.expr]) -> ast.stmt:
    """The first statement that holds one of some expressions in the innermost block that holds them all."""
    chains = [_chain(file, function, node) for node in nodes]
    depth = 0
    while all(len(chain) > depth for chain in chains) and len({id(chain[depth]) for chain in chains}) == 1:
        depth += 1
    apart = [chain[depth] for chain in chains if len(chain) > depth]
    if len(apart) < len(chains) or any(block(file, one) is not block(file, apart[0]) for one in apart):
        return chains[0][depth - 1]
    return min(apart, key=lambda one: (one.lineno, one.col_offset))


def _chain(file: SourceFile, function: Function, node: ast.AST) -> list[ast.stmt]:
    """The statements of a function that a node stands in, from the outside in."""
    found: list[ast.stmt] = []
    above: ast.AST | None = node
    while above is not None and above is not function:
        if isinstance(above, ast.stmt):
            found.append(above)
        above = file.parent(above)
    return found[::-1]


def _until(file: SourceFile, statement: ast.stmt, nodes: Sequence[ast.expr]) -> list[ast.stmt]:
    """A statement and those behind it in its block, up to the last that holds one of some expressions."""
    around = block(file, statement)
    first = next(at for at, one in enumerate(around) if one is statement)
    inside = {id(above) for node in nodes for above in _ancestors(file, node)}
    last = max(at for at, one in enumerate(around) if id(one) in inside)
    return around[first : last + 1]


def _ancestors(file: SourceFile, node: ast.AST) -> Iterator[ast.AST]:
    above = file.parent(node)
    while above is not None:
        yield above
        above = file.parent(above)


def _disturbs(file: SourceFile, region: Sequence[ast.stmt], nodes: Sequence[ast.expr], binding: ast.AST) -> bool:
    """Whether a binding may come before the last of some expressions is evaluated."""
    inside = {id(one) for statement in region for one in ast.walk(statement)}
    if any(id(loop) in inside for loop in file.loops(binding)):
        return True
    last = max(nodes, key=lambda node: (node.lineno, node.col_offset))
    own, statement = file.statement(last), file.statement(binding)
    if statement is own:
        return not isinstance(own, ast.Assign | ast.AnnAssign) or not _is_target(own, binding)
    return (statement.lineno, statement.col_offset) < (own.end_lineno or 0, own.end_col_offset or 0)


def _is_target(statement: ast.Assign | ast.AnnAssign, binding: ast.AST) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(part is binding for target in targets for part in ast.walk(target))


def _is_bound(file: SourceFile, function: Function, statement: ast.stmt, name: str) -> bool:
    """Whether a name is bound by the time a statement begins, on each way to it."""
    if name in parameters(function):
        return True
    around = {id(statement), *map(id, _ancestors(file, statement))}
    return any(
        binding is not statement
        and (by := file.statement(binding)).lineno < statement.lineno
        and not (isinstance(binding, ast.Name) and isinstance(binding.ctx, ast.Del))
        and any(id(one) in around for one in block(file, by))
        for binding in bindings(function.body, name)
    )


def _is_asked_for(file: SourceFile, node: ast.expr, statement: ast.stmt, text: str) -> bool:
    """Whether something between a statement and an expression in it first looks at what that is of."""
    below: ast.AST = node
    for above in _ancestors(file, node):
        tests: list[ast.expr] = []
        if isinstance(above, ast.If | ast.IfExp | ast.While) and below is not above.test:
            tests = [above.test]
        elif isinstance(above, ast.BoolOp):
            tests = [value for value in above.values if value is not below]
        elif isinstance(above, ast.Match):
            tests = [above.subject]
        if any(_mentions(test, text) for test in tests):
            return True
        if above is statement:
            break
        below = above
    return False


def _mentions(test: ast.expr, text: str) -> bool:
    return any(isinstance(part, ast.expr) and ast.unparse(part) == text for part in ast.walk(test))


__all__ = ["Anchor", "anchor_of"]
