"""Where a program writes to a tensor in place: item assignments, functions that end in `_`, `out=`, collectives."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise.linter.facts.effects import METHODS, RELAYOUTS, Effect

if TYPE_CHECKING:
    from stridewise.linter.module import Module, Scope

_IN_PLACE = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]_")
NO_WRITES = frozenset((*RELAYOUTS, "requires_grad_", "detach_", "share_memory_"))
"""Methods that end in `_` and leave the elements alone."""
COLLECTIVES = frozenset(
    (
        *("all_reduce", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "scatter"),
        *("all_to_all_single", "recv", "irecv"),
    )
)
"""Functions of `torch.distributed` that write to their first argument on every rank."""
_VIEW_EFFECTS = (Effect.PERMUTED, Effect.EXPANDED, Effect.PART, Effect.RESHAPED)
_LOOKS_WRITTEN = rb"[\[.].*(?:=|_\s*\()|[\[.(]\s*\n|[-+*/%&|^@]=|//=|\*\*=|<<=|>>="
_VIEW_ATTRIBUTES = ("T", "mT", "H", "mH", "data")


class Write(Struct, frozen=True):
    """One place that writes to a tensor, or to a view of it."""

    node: ast.expr | ast.stmt
    method: str | None
    """The method or function that writes, such as `add_`; None for an assignment."""
    whole: bool
    """Whether it writes to the tensor itself, rather than to a view of it."""
    used: bool
    """Whether something goes on with what the method returned."""


def is_in_place(name: str) -> bool:
    """Whether a method of this name writes to the tensor that it is called on."""
    return _IN_PLACE.fullmatch(name) is not None and name not in NO_WRITES


def write_to(module: "Module", node: ast.expr) -> Write | None:
    """The write to an indexed expression, or to a view that is made of it at once; None if there is none."""
    holder = view_of(module, node)
    whole = holder is node
    parent = module.parent(holder)
    match parent:
        case ast.Subscript(value=value, ctx=ast.Store()) if value is holder:
            return Write(module.statement(parent), None, whole, used=False)
        case ast.Attribute(attr=name) if is_in_place(name):
            call = module.parent(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                return Write(call, name, whole, _is_used(module, call))
        case ast.keyword(arg="out"):
            call = module.parent(parent)
            if isinstance(call, ast.Call):
                return Write(call, "out", whole, not isinstance(module.parent(call), ast.Expr))
        case ast.Call(args=[first, *_]) if first is holder:
            package, _, last = (module.name(parent.func) or "").rpartition(".")
            if package == "torch.distributed" and last in COLLECTIVES:
                return Write(parent, last, whole, used=False)
            if package.partition(".")[0] == "torch" and is_in_place(last):
                return Write(parent, last, whole, _is_used(module, parent))
    return None


def view_of(module: "Module", node: ast.expr) -> ast.expr:
    """The outermost view that is made of an indexed expression where it stands; itself, if there is none."""
    while True:
        parent = module.parent(node)
        match parent:
            case ast.Subscript(value=value, slice=index, ctx=ast.Load()) if value is node and _may_be_view(index):
                node = parent
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _VIEW_ATTRIBUTES:
                node = parent
            case ast.Attribute(attr=name, ctx=ast.Load()) if METHODS.get(name) in _VIEW_EFFECTS:
                call = module.parent(parent)
                if not isinstance(call, ast.Call) or call.func is not parent:
                    return node
                node = call
            case _:
                return node


def may_be_written(module: "Module", scope: "Scope", name: str) -> bool:
    """Whether the text of a function has what a write to a name looks like: quicker than to look at its nodes."""
    first, last = (scope.body[0], scope.body[-1]) if isinstance(scope.body, list) else (scope.body, scope.body)
    source = module.source
    start = source.offset(first.lineno, first.col_offset)
    end = source.offset(last.end_lineno or last.lineno, last.end_col_offset or 0)
    written = rb"\b%s\s*(?:%s)" % (re.escape(name.encode(source.encoding)), _LOOKS_WRITTEN)
    return re.compile(written).search(source.content, start, end) is not None


def writes_to_name(scope: "Scope", name: str) -> Iterator[tuple[Write, ast.Name]]:
    """The writes in a function to what a local name stands for, each with the name where it stands."""
    dropped: set[ast.expr] = set()
    """Calls in place whose result nobody uses."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Expr):
            dropped.update(_calls_in_place(node.value))
        for target, write in _writes(node, dropped):
            base = viewed(target)
            if isinstance(base, ast.Name) and base.id == name:
                yield write, base


def _writes(node: ast.AST, dropped: Collection[ast.expr]) -> Iterator[tuple[ast.expr, Write]]:
    """What a statement or a call writes to."""
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript):
                    yield target.value, Write(node, None, isinstance(target.value, ast.Name), used=False)
        case ast.AugAssign(target=ast.Subscript(value=value)):
            yield value, Write(node, None, isinstance(value, ast.Name), used=False)
        case ast.AugAssign(target=ast.Name() as name):
            yield name, Write(node, "+=", whole=True, used=False)
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if is_in_place(method):
            yield receiver, Write(node, method, isinstance(receiver, ast.Name), node not in dropped)


def _calls_in_place(node: ast.expr) -> Iterator[ast.Call]:
    """`x.add_(1).mul_(2)` and what it is called on, as long as that is a call in place too."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_in_place(node.func.attr):
        yield node
        node = node.func.value


def viewed(node: ast.expr) -> ast.expr:
    """What an expression is a view of, by the names of what makes it."""
    while True:
        match node:
            case ast.Subscript(value=value, slice=index) if _may_be_view(index):
                node = value
            case ast.Attribute(value=value, attr=name) if name in _VIEW_ATTRIBUTES:
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if METHODS.get(name) in _VIEW_EFFECTS:
                node = value
            case _:
                return node


def _may_be_view(index: ast.expr) -> bool:
    """Whether an index may give a view: one of lists or of a mask gives a copy."""
    items = index.elts if isinstance(index, ast.Tuple) else [index]
    return not any(isinstance(item, (ast.List, ast.ListComp, ast.Compare)) for item in items)


def _is_used(module: "Module", call: ast.Call) -> bool:
    """Whether the result of an in-place call goes anywhere, past the in-place calls that follow it."""
    statement = module.statement(call)
    return not isinstance(statement, ast.Expr) or call not in _calls_in_place(statement.value)
