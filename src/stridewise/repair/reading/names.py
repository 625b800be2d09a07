"""What a function does to its names: where it binds them, and who else looks at them."""

import ast
from collections.abc import Iterable, Iterator

from stridewise.source.file import Function, SourceFile

Scope = Function | ast.Lambda | ast.ClassDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parameters(function: Function) -> set[str]:
    """The names that a function is called with."""
    given = function.args
    plain = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return {arg.arg for arg in (*plain, given.vararg, given.kwarg) if arg is not None}


def bindings(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.AST]:
    """Where the code below some nodes binds or deletes a name, nested functions left out."""
    return (part for node in nodes for part in _own(node) if _binds(part) == name)


def is_local(function: Function, name: str) -> bool:
    """Whether a name is the function's own, so that a line in it may bind it anew."""
    if any(name in part.names for part in ast.walk(function) if isinstance(part, ast.Global | ast.Nonlocal)):
        return False
    return name in parameters(function) or any(bindings(function.body, name))


def is_captured(function: Function, name: str) -> bool:
    """Whether a function, a class or a generator inside a function has one of its names: it may look there later."""
    inner = (part for part in ast.walk(function) if part is not function)
    return any(
        isinstance(part, ast.Name) and part.id == name
        for scope in inner
        if isinstance(scope, Scope | ast.GeneratorExp)
        for part in ast.walk(scope)
    )


def unused_name(file: SourceFile, wanted: str) -> str:
    """A name that stands nowhere in a file, as like a wanted one as can be."""
    taken = {name for part in ast.walk(file.tree) if (name := _binds(part))}
    taken |= {part.id for part in ast.walk(file.tree) if isinstance(part, ast.Name)}
    tries = (wanted, f"{wanted}_copy", *(f"{wanted}_copy{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in tries if name not in taken)


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression reads."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def is_deferred(file: SourceFile, node: ast.AST) -> bool:
    """Whether an expression runs another time, or more often, than the statement that it stands in."""
    while not isinstance(node, ast.stmt):
        above = file.parent(node)
        if above is None or isinstance(above, (ast.Lambda, *_COMPREHENSIONS)):
            return True
        node = above
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it in the same scope. Comprehensions have their own names, but for `:=`."""
    yield node
    if isinstance(node, Scope):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.comprehension) and child is node.target:
            continue
        yield from _own(child)


def _binds(part: ast.AST) -> str | None:
    """The name that a node binds or deletes by itself."""
    match part:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case ast.alias(name=name, asname=renamed):
            return renamed or name.partition(".")[0]
    return None
