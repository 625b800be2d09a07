"""What stands in a scope, without running it: its parameters, the names that its parts bind, what changes layouts."""

import ast
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stridewise.linter.facts.effects import RELAYOUTS
from stridewise.linter.facts.value import NUMBER, OTHER, Kind, Value

if TYPE_CHECKING:
    from stridewise.linter.module import Module

_TENSORS = (
    *("Tensor", "FloatTensor", "LongTensor", "IntTensor", "BoolTensor", "HalfTensor", "DoubleTensor", "ByteTensor"),
    *("ShortTensor", "CharTensor", "BFloat16Tensor", "Parameter"),
)
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_TENSORS, "tensor"),
    **dict.fromkeys(("ndarray", "NDArray"), "array"),
    **dict.fromkeys(("int", "float", "bool", "str", "bytes", "dict", "list", "tuple", "set", "complex"), "other"),
    **dict.fromkeys(("Dict", "List", "Tuple", "Set", "Callable", "Sequence", "Iterable", "Mapping"), "other"),
}
_LIBRARIES = ("torch", "numpy", "jaxtyping", "typing", "collections")
_NAMING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar, ast.ExceptHandler)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parameters(arguments: ast.arguments, module: "Module | None" = None) -> dict[str, Value]:
    """What is known of a function's parameters."""
    found = {}
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        is_int = isinstance(each.annotation, ast.Name) and each.annotation.id == "int"
        found[each.arg] = NUMBER if is_int else Value(kind_of(each.annotation, module), op="parameter")
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            found[rest.arg] = OTHER
    return found


def kind_of(annotation: ast.expr | None, module: "Module | None" = None) -> Kind:
    """What an annotation says a value is; `Tensor | None` is a tensor where it is used as one."""
    match annotation:
        case ast.Constant(value=str(text)):
            return kind_of(_parsed(text.strip()), module)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            full = module.name(annotation) if module is not None else None
            if full is None and module is not None and name in module.classes:
                return "unknown"
            # `Tensor` of another library is none of torch's.
            return _KINDS.get(name, "unknown") if full is None or full.startswith(_LIBRARIES) else "unknown"
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([left, right], module)
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return kind_of(inner, module)
        case ast.Subscript(value=ast.Name(id="Union") | ast.Attribute(attr="Union"), slice=ast.Tuple(elts=parts)):
            return _either(parts, module)
        case ast.Subscript(
            value=ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=parts)
        ):
            return kind_of(parts[0], module)
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=[inner, ast.Constant(value=str())])):
            # jaxtyping's `Float[Tensor, "batch channels"]`
            return kind_of(inner, module) if kind_of(outer, module) == "unknown" else "other"
        case ast.Subscript(value=outer):
            return kind_of(outer, module)
    return "unknown"


@functools.lru_cache(maxsize=1024)
def _parsed(annotation: str) -> ast.expr | None:
    try:
        return ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _either(parts: Iterable[ast.expr], module: "Module | None") -> Kind:
    kinds = {kind_of(part, module) for part in parts if not (isinstance(part, ast.Constant) and part.value is None)}
    return kinds.pop() if len(kinds) == 1 else "unknown"


class Changes(NamedTuple):
    """What some statements may change when they run."""

    names: set[str]
    """Those that they bind, what nested functions bind included."""
    relays: bool
    """Whether they may change how a tensor lies, in place."""


def changes_in(parts: Iterable[ast.AST]) -> Changes:
    """What some statements, or parts of them, may change."""
    names: set[str] = set()
    relays = False
    waiting = [*parts]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        for field in node._fields:
            inside = getattr(node, field, None)
            if type(inside) is list:
                waiting += [each for each in inside if isinstance(each, ast.AST)]
            elif isinstance(inside, ast.AST):
                waiting.append(inside)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
        elif kind is ast.Attribute:
            relays = relays or is_relayout(node)  # type: ignore[arg-type]
        elif kind is ast.Call:
            relays = relays or sets_by_name(node)  # type: ignore[arg-type]
        elif kind is ast.keyword:
            relays = relays or node.arg == "out"  # type: ignore[attr-defined]
        elif isinstance(node, _NAMING):
            names.add(node.name or "")
        elif kind is ast.MatchMapping:
            names.add(node.rest or "")  # type: ignore[attr-defined]
        elif kind is ast.alias:
            names.add((node.asname or node.name).partition(".")[0])  # type: ignore[attr-defined]
    names.discard("")
    return Changes(names, relays)


def is_relayout(node: ast.Attribute) -> bool:
    """Whether an attribute is a method that changes how a tensor lies in place, or `data` that is assigned to."""
    return node.attr in RELAYOUTS or (node.attr == "data" and type(node.ctx) is ast.Store)


def sets_by_name(call: ast.Call) -> bool:
    """Whether a call is one of `setattr(x, "data", …)`, `x.__setattr__("data", …)` and `getattr(x, "t_")`."""
    match call:
        case (
            ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="data"), *_])
            | ast.Call(func=ast.Attribute(attr="__setattr__"), args=[*_, ast.Constant(value="data"), _])
        ):
            return True
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
            return name in RELAYOUTS
    return False


def rebound(statement: _Definition) -> set[str]:
    """The names around a definition that it may bind anew."""
    nodes = (node for node in ast.walk(statement) if isinstance(node, (ast.Nonlocal, ast.Global)))
    return {name for node in nodes for name in node.names}


def evaluated_here(statement: _Definition) -> Iterator[ast.expr]:
    """What of a definition runs where it stands."""
    yield from statement.decorator_list
    if isinstance(statement, ast.ClassDef):
        yield from statement.bases
        yield from (keyword.value for keyword in statement.keywords)
        return
    yield from statement.args.defaults
    yield from (default for default in statement.args.kw_defaults if default is not None)


def breaks(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether something in a loop may leave it."""
    return any(isinstance(node, ast.Break) for part in loop.body for node in ast.walk(part))
