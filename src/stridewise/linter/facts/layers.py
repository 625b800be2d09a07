"""Which layer an attribute of a module is: what its class assigns to it, `self.conv = nn.Conv2d(…)`."""

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from stridewise.linter.module import Module, Scope

_BODIES = ("finalbody", "orelse", "handlers", "cases", "body")
_KNOWN: "WeakKeyDictionary[Module, dict[ast.ClassDef, dict[str, tuple[ast.Call, ...]]]]" = WeakKeyDictionary()


def layer_of(module: "Module", scope: "Scope", function: ast.Attribute) -> str | None:
    """The last part of the class of `self.NAME` in a call, such as `Conv2d`, if it is one of `torch.nn`'s."""
    calls = layer_calls(module, scope, function)
    return layer_name(module, calls[0]) if calls else None


def layer_calls(module: "Module", scope: "Scope", function: ast.expr) -> tuple[ast.Call, ...]:
    """The calls that make `self.NAME`, all of one class of `torch.nn`; empty if that is not sure."""
    if not (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    ):
        return ()
    owner = module.class_of(scope)
    if not isinstance(owner, ast.ClassDef):
        return ()
    known = _KNOWN.setdefault(module, {})
    if owner not in known:
        known[owner] = _layers(module, owner)
    return known[owner].get(function.attr, ())


def layer_name(module: "Module", node: ast.expr) -> str | None:
    """`Conv2d` for `nn.Conv2d(…)`; None for what is none of torch's layers."""
    name = module.name(node.func) if isinstance(node, ast.Call) else None
    return name.removeprefix("torch.nn.") if name is not None and name.startswith("torch.nn.") else None


def _layers(module: "Module", owner: ast.ClassDef) -> dict[str, tuple[ast.Call, ...]]:
    found: dict[str, list[ast.expr]] = {}
    for node in (each for method in owner.body if isinstance(method, ast.FunctionDef) for each in _statements(method)):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.setdefault(target.attr, []).append(node.value)
    layers: dict[str, tuple[ast.Call, ...]] = {}
    for name, made in found.items():
        made = [each for each in made if not (isinstance(each, ast.Constant) and each.value is None)]
        names = {layer_name(module, each) for each in made}
        if len(names) == 1 and None not in names:
            layers[name] = tuple(each for each in made if isinstance(each, ast.Call))
    return layers


def _statements(method: ast.FunctionDef) -> Iterator[ast.stmt]:
    """The statements of a method, nested ones included; its expressions are not looked at."""
    waiting: list[ast.AST] = [method]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in _BODIES:
            waiting += getattr(node, field, ())
