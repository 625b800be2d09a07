"""Edits that put a copy behind what a call gives, or at the top of a module's `forward`."""

import ast
from collections.abc import Callable, Iterator, Sequence

from stridewise.analysis.functions import short_name
from stridewise.findings import Edit
from stridewise.repair.context import Context
from stridewise.repair.reading.names import is_captured, is_deferred, is_local, parameters
from stridewise.repair.reading.streams import Point
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits
from stridewise.source.file import Function, SourceFile

SPLITS = (
    "unbind",
    "split",
    "split_with_sizes",
    "tensor_split",
    "chunk",
    "hsplit",
    "vsplit",
    "dsplit",
    "meshgrid",
    "broadcast_tensors",
)
"""Functions that give a sequence of tensors, even if it is of one. A test runs each."""

_VALUES = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute)
"""What can be a call that the log knows, and be followed by `.contiguous()`. A name is none: it was unpacked there."""


def expression_of(context: Context, call: int) -> tuple[SourceFile, ast.expr] | None:
    """The expression that a call was made by, and gave the value of; None if it can't be edited in place."""
    found = context.expression(context.case.site(call))
    return found if found is not None and is_value(*found) and context.is_what_its_site_gives(call) else None


def is_value(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression can be edited where it stands: not a target, and not inside an f-string."""
    return (
        isinstance(node, _VALUES)
        and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        and not file.in_fstring(node)
    )


def copy_behind(context: Context, point: Point, suffix: str) -> Edit | None:
    """Copy what a call gives as soon as it is there; None where there is no clean way to."""
    found = expression_of(context, point.call)
    if found is None:
        return None
    file, node = found
    function = short_name(context.case.function(point.call))
    statement, around = file.parent(node), file.function(node)
    if around is not None and may_be_written(context, file, around, [node]):
        return None
    try:
        if isinstance(statement, ast.Expr) and function.endswith("_") and not function.startswith("_"):
            return _copy_names(file, node, [_receiver(node)], suffix)
        if function not in SPLITS and len(context.case.log.calls[point.call].outputs) == 1:
            return edits.append(file, node, suffix)
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)]):
                if point.outputs[-1] < len(targets) and not any(isinstance(one, ast.Starred) for one in targets):
                    return _copy_names(file, node, [targets[output] for output in point.outputs], suffix)
    except ValueError:  # no place that such an edit may have
        return None
    return None


def _copy_names(file: SourceFile, node: ast.expr, targets: Sequence[ast.expr | None], suffix: str) -> Edit | None:
    """A statement behind that of a node, which replaces names by copies of what they hold."""
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    function = file.function(node)
    if len(names) < len(targets) or function is None or is_deferred(file, node):
        return None
    if any(is_captured(function, name) or not is_local(function, name) for name in names):
        return None
    line = f"{', '.join(names)} = {', '.join(f'{name}{suffix}' for name in names)}"
    return edits.insert_after(file, file.statement(node), line)


def _receiver(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() as value)):
            return value
    return None


def copy_on_entry(
    context: Context, point: Point, suffix_in: Callable[[SourceFile], str | None]
) -> tuple[SourceFile, Function, str, Edit] | None:
    """Copy a tensor that the model is given at the top of the first `forward` that receives it and can be edited.

    With the file, the `forward` and the parameter.
    """
    payers = [context.case.copies[position].call for position in point.copies]
    for number, path in _receivers(context, point):
        module = context.module(number)
        if module is None or any(number not in context.modules_around(call) for call in payers):
            continue
        found = context.definition(type(module).forward)
        if found is None:
            continue
        file, function = found
        name, suffix = _parameter(function, path), suffix_in(file)
        if name is None or suffix is None or is_captured(function, name):
            continue
        if may_be_written(context, file, function, [name]):
            continue
        try:
            line = f"{name} = {name}{suffix}"
            return file, function, name, edits.insert_before(file, _first_statement(function), line)
        except ValueError:
            continue
    return None


def _receivers(context: Context, point: Point) -> Iterator[tuple[int, str]]:
    """The module calls that were given the tensor, from the outside in, with the path of it in their arguments."""
    log = context.case.log
    for number, row in enumerate(log.module_calls):
        for path, ref in row.inputs:
            if log.refs[ref].object == point.outputs[0]:
                yield number, path


def _parameter(function: Function, path: str) -> str | None:
    """The plain parameter of a method that an argument's path means."""
    given = function.args
    positional = [arg.arg for arg in (*given.posonlyargs, *given.args)][1:]
    if path.isdecimal():
        return positional[int(path)] if int(path) < len(positional) else None
    varied = {arg.arg for arg in (given.vararg, given.kwarg) if arg is not None}
    return path if path in parameters(function) - varied else None


def _first_statement(function: Function) -> ast.stmt:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1] if is_docstring and len(function.body) > 1 else first
