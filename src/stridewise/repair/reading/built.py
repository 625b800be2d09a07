"""Edits of `__init__` for a parameter, a buffer or a plain tensor that a module keeps."""

import ast
import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from stridewise.analysis.lineage import Stream
from stridewise.findings import Edit
from stridewise.repair.candidate import Conversion
from stridewise.repair.context import Context
from stridewise.repair.reading.operands import operand_of
from stridewise.source import edits
from stridewise.source.file import Function, SourceFile

What = Literal["parameter", "buffer", "attribute"]
_TYPES = ("Parameter", "Buffer")
_NAMED = re.compile(r"the (parameter|buffer) `(.+\.)?([^.]+)`")


class Built(Struct, frozen=True):
    """Where a module makes a tensor that it keeps."""

    file: SourceFile
    init: Function
    value: ast.expr
    """What the tensor is made of."""
    owner: type
    """The class whose `__init__` that is."""


def keepers(context: Context, position: int, stream: Stream) -> Iterator[tuple[Any, What, str]]:
    """The live modules that keep the tensor which a copy reads as it is, with the name there."""
    case, origin = context.case, stream.origin
    row = case.flow.row(stream.ref) if stream.ref is not None else None
    if row is None or stream.carriers or context.live.model is None:
        return
    found: list[tuple[Any, What, str]] = []
    if origin.kind == "parameter" and (match := _NAMED.fullmatch(origin.name or "")):
        what: What = "parameter" if match[1] == "parameter" else "buffer"
        try:
            found.append((context.live.model.get_submodule((match[2] or "").rstrip(".")), what, match[3]))
        except AttributeError:  # of another model
            return
    elif origin.kind == "outside":
        call = case.copies[position].call
        expression = context.expression(case.site(call))
        operand = operand_of(context, *expression, call, stream) if expression is not None else None
        if isinstance(operand, ast.Attribute) and isinstance(operand.value, ast.Name):
            modules = (context.module(number) for number in context.modules_around(call))
            found += [(module, "attribute", operand.attr) for module in modules if module is not None]
    for module, table, name in found:
        tensor: Any = kept(module, table).get(name)
        if hasattr(tensor, "stride") and (tuple(tensor.shape), tensor.stride()) == (row.sizes, row.strides):
            yield module, table, name


def where_built(context: Context, module: Any, what: What, name: str) -> Built | None:
    """The one expression that an `__init__` of the module's class keeps under a name; None if it can't be told."""
    for owner in type(module).__mro__:
        if "__init__" not in vars(owner) or (found := context.definition(vars(owner)["__init__"])) is None:
            continue
        file, init = found
        values = [value for value in _values(init, what, name) if value is not None]
        if len(values) == 1 and not file.in_fstring(values[0]):
            return Built(file, init, values[0], owner)
        if values:
            return None
    return None


def contiguous(built: Built) -> Edit | None:
    """Make it contiguous there; None if it can't be, or is said to be already."""
    match built.value:
        case ast.Call(func=ast.Attribute(attr="contiguous")) | ast.Constant():
            return None
    try:
        return edits.append(built.file, built.value, ".contiguous()")
    except ValueError:
        return None


def conversions(context: Context, built: Built, what: What, name: str) -> tuple[Conversion, ...]:
    """The same for the live modules of that class."""
    found = []
    for path, module in context.live.model.named_modules() if context.live.model is not None else ():
        if isinstance(module, built.owner) and kept(module, what).get(name) is not None:
            found.append(Conversion(what, f"{path}.{name}".lstrip("."), "contiguous"))
    return tuple(found)


def kept(module: Any, what: What) -> dict[str, Any]:
    """What a module keeps, by name."""
    tables = {"parameter": module._parameters, "buffer": module._buffers, "attribute": vars(module)}
    return dict(tables[what])


def _values(init: Function, what: What, name: str) -> Iterator[ast.expr | None]:
    given = [*init.args.posonlyargs, *init.args.args]
    own = given[0].arg if given else "self"
    for part in ast.walk(init):
        match part:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(id=target), attr=attr)], value=value)
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(id=target), attr=attr), value=value)
            ) if (target, attr) == (own, name) and value is not None:
                yield _inside(value, what)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=target), attr="register_buffer" | "register_parameter"),
                args=[ast.Constant(value=attr), value, *_],
            ) if (target, attr) == (own, name):
                yield _inside(value, what) if what == "parameter" else value


def _inside(value: ast.expr, what: What) -> ast.expr | None:
    """What is handed to `nn.Parameter`. Behind it a copy would be no parameter."""
    match value:
        case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=[first, *_]) if called in _TYPES:
            return None if isinstance(first, ast.Starred) else first
    return value if what != "parameter" else None
