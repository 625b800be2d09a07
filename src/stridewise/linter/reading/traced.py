"""Which functions of a file are traced or exported there: Python's branches in them are decided once."""

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stridewise.source.file import Function

if TYPE_CHECKING:
    from stridewise.linter.module import Module

EXPORTERS = (
    "torch.jit.trace",
    "torch.export.export",
    "torch.onnx.export",
    "torch.export.draft_export",
    "torch.fx.experimental.proxy_tensor.make_fx",
)
"""Functions that record what a module or a function does for an example. Its first argument is what they record."""
_Definition = Function | ast.ClassDef


def traced_functions(module: "Module") -> dict[Function, ast.Call]:
    """Each function that runs while something of the file is traced, with the call that traces it."""
    calls = [call for call in module.calls(*(name.rpartition(".")[2] for name in EXPORTERS)) if _exports(module, call)]
    if not calls:
        return {}
    defined = {node.name: node for node in module.source.tree.body if isinstance(node, _Definition)}
    found: dict[Function, ast.Call] = {}
    for call in calls:
        argument = call.args[0] if call.args else _keyword(call)
        if argument is not None:
            _reach(_roots(module, call, argument, defined), defined, call, found)
    return found


def _exports(module: "Module", call: ast.Call) -> bool:
    return module.name(call.func) in EXPORTERS


def _keyword(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg in ("func", "mod", "model", "f")), None)


def _roots(
    module: "Module", call: ast.Call, argument: ast.expr, defined: dict[str, _Definition]
) -> Iterator[_Definition]:
    """What the file defines of what is handed to an exporter: by name, or by what a name was last bound to."""
    scope = module.scope(call)
    wanted, seen = [*_names(argument)], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in defined:
            yield defined[name]
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            ):
                wanted += _names(node.value)


def _reach(
    roots: Iterable[_Definition],
    defined: dict[str, _Definition],
    call: ast.Call,
    found: dict[Function, ast.Call],
) -> None:
    """Add the functions that may run when one of the roots is called: forwards, and what these call in the file."""
    waiting: list[tuple[_Definition, ast.ClassDef | None]] = [(root, None) for root in roots]
    seen: set[ast.AST] = set()
    while waiting:
        node, owner = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.ClassDef):
            waiting += [(each, node) for each in _methods(node) if each.name in ("forward", "__call__")]
        elif owner is not None or node.name != "__init__":
            found.setdefault(node, call)
        for name in _names(node):  # what is made in `__init__`, base classes, functions that are called
            if name in defined:
                waiting.append((defined[name], None))
        if owner is not None:
            called = _own_names(node)
            waiting += [(each, owner) for each in _methods(owner) if each.name in called]


def _methods(owner: ast.ClassDef) -> Iterator[Function]:
    return (each for each in owner.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _own_names(node: ast.AST) -> set[str]:
    """The names of what is read from `self`."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
    }
