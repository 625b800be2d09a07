"""Edits of where a model is made: its class's `__init__` and `forward`, or the function that builds it. No torch."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from stridewise.findings import Edit, Site
from stridewise.repair.context import Context
from stridewise.source import edits
from stridewise.source.file import Function, SourceFile
from stridewise.source.files import Files


class Wish(Struct, frozen=True):
    """What is to be in a memory format."""

    format: str
    """`channels_last` or `channels_last_3d`."""
    part: str
    """A child of the model; empty for all of it."""
    inputs: tuple[str, ...]
    """Paths of the inputs that are to be converted as well."""


class Written(Struct, frozen=True):
    """The edits that do it, and where."""

    site: Site
    edits: tuple[Edit, ...]


def write(context: Context, wish: Wish) -> Written | None:
    """The edits that convert a model and its inputs where it is made; None where there is no clean way to."""
    model = plain(context.live.model)
    target = context.live.target
    try:
        if target is not None and _is_installed(context, type(model)):
            return _in_target(context, target, wish)
        return _in_class(context, model, wish)
    except ValueError:  # no place that such an edit may have
        return None


def plain(model: Any) -> Any:
    """A module without what `torch.compile` wraps around it."""
    return getattr(model, "_orig_mod", model)


def _is_installed(context: Context, kind: type) -> bool:
    forward = getattr(kind, "forward", None)
    found = context.definition(forward) if forward is not None else None
    return found is None or Files(Path.cwd()).is_installed(found[0].path)


# -- the model's class ---------------------------------------------------------------------------------------------


def _in_class(context: Context, model: Any, wish: Wish) -> Written | None:
    kind = type(model)
    own = vars(kind)
    # What is loaded from a hub gets its parameters after `__init__`, with the strides that they have in the file.
    if kind.__module__.partition(".")[0] == "torch" or hasattr(kind, "from_pretrained") or "__init__" not in own:
        return None
    found = context.definition(own["__init__"])
    if found is None:
        return None
    file, init = found
    receiver = _receiver(init)
    if receiver is None or (wish.part and not wish.part.isidentifier()):
        return None
    torch, imports = _torch(file)
    line = f"{receiver}{'.' if wish.part else ''}{wish.part}.to(memory_format={torch}.{wish.format})"
    made = [*imports, _at_end(file, init, line)]
    if wish.inputs:
        forward = context.definition(own["forward"]) if "forward" in own else None
        if forward is None or forward[0] is not file:
            return None
        lines = _conversions(kind, forward[1], wish, torch)
        made += [edits.insert_before(file, _first_statement(forward[1]), line) for line in lines]
    site = Site(file=file.name, line=init.lineno, function=f"{kind.__qualname__}.{init.name}")
    return Written(site, tuple(made))


def _receiver(function: Function) -> str | None:
    given = [*function.args.posonlyargs, *function.args.args]
    return given[0].arg if given else None


def _at_end(file: SourceFile, function: Function, line: str) -> Edit:
    last = function.body[-1]
    ends = isinstance(last, ast.Return | ast.Raise)
    if any(part is not last for part in _returns(function)):
        raise ValueError("the function has more than one end")
    return edits.insert_before(file, last, line) if ends else edits.insert_after(file, last, line)


def _returns(function: Function) -> Iterator[ast.Return]:
    """The function's own `return` statements."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Return):
            yield part
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(part)


def _conversions(kind: Any, forward: Function, wish: Wish, torch: str) -> list[str]:
    """A line for each input. Raises ValueError where one is no parameter of its own."""
    lines = []
    for path in wish.inputs:
        parameter = _parameter(kind, path)
        name, suffix = parameter.name, f".to(memory_format={torch}.{wish.format})"
        if name not in {arg.arg for arg in ast.walk(forward) if isinstance(arg, ast.arg)}:
            raise ValueError("the source of `forward` is another")
        optional = parameter.default is None
        lines.append(
            f"{name} = {name} if {name} is None else {name}{suffix}" if optional else f"{name} = {name}{suffix}"
        )
    return lines


def _parameter(kind: Any, path: str) -> inspect.Parameter:
    """The parameter of a class's `forward` that takes an input."""
    given = list(inspect.signature(kind.forward).parameters.values())[1:]
    positional = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    named = {one.name: one for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if path.isdecimal() and int(path) < len(positional):
        return positional[int(path)]
    if path in named:
        return named[path]
    raise ValueError("the input is a part of an argument")


def _first_statement(function: Function) -> ast.stmt:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1] if is_docstring and len(function.body) > 1 else first


def _torch(file: SourceFile) -> tuple[str, tuple[Edit, ...]]:
    """The name that torch has in a file, and the import that it takes."""
    name = edits.torch_name(file)
    return (name, ()) if name is not None else ("torch", (edits.import_torch(file),))


# -- the function that builds the model ----------------------------------------------------------------------------


def _in_target(context: Context, target: Any, wish: Wish) -> Written | None:
    found = context.definition(target)
    if found is None:
        return None
    file, function = found
    ends = list(_returns(function))
    if len(ends) != 1 or not isinstance(ends[0].value, ast.Tuple) or len(ends[0].value.elts) not in (2, 3):
        return None
    model, *given = ends[0].value.elts
    torch, imports = _torch(file)
    suffix = f".to(memory_format={torch}.{wish.format})"
    made = list(imports)
    if wish.part:
        if not isinstance(model, ast.Name):
            return None
        made.append(edits.insert_before(file, ends[0], f"{model.id}.{wish.part}{suffix}"))
    else:
        made.append(edits.append(file, model, suffix))
    for path in wish.inputs:
        node = _argument(function, given, path, torch)
        if node is None:
            return None
        made.append(edits.append(file, node, suffix))
    site = Site(file=file.name, line=ends[0].lineno, function=function.name, expression=file.source(model))
    return Written(site, tuple(made))


def _argument(function: Function, given: Sequence[ast.expr], path: str, torch: str) -> ast.expr | None:
    """The expression of one input among those of a model's arguments."""
    for node in given:
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if path.isdecimal():
                plain = not any(isinstance(element, ast.Starred) for element in elements)
                if plain and int(path) < len(elements):
                    return elements[int(path)]
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == path:
                        return value
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == path:
                        return keyword.value
            case _ if path == "0" and node is given[0] and _is_made_by(function, node, torch):
                return node
    return None


def _is_made_by(function: Function, node: ast.expr, torch: str) -> bool:
    """Whether an expression is a call of a function of torch, or a name for one: a tensor, not arguments."""
    if isinstance(node, ast.Name):
        bound = [part for part in ast.walk(function) if isinstance(part, ast.Assign)]
        values = [
            part.value for part in bound if any(isinstance(to, ast.Name) and to.id == node.id for to in part.targets)
        ]
        return len(values) == 1 and not isinstance(values[0], ast.Name) and _is_made_by(function, values[0], torch)
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == torch
