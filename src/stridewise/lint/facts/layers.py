"""Which layer an attribute of a module is: what its class assigns to it, `self.conv = nn.Conv2d(…)`."""

import ast
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from stridewise.lint.module import Module, Scope

_KNOWN: "WeakKeyDictionary[Module, dict[ast.ClassDef, dict[str, str]]]" = WeakKeyDictionary()


def layer_of(module: "Module", scope: "Scope", function: ast.Attribute) -> str | None:
    """The last part of the class of `self.NAME` in a call, such as `Conv2d`, if it is one of `torch.nn`'s."""
    if not isinstance(function.value, ast.Name) or function.value.id != "self":
        return None
    owner = module.class_of(scope)
    if owner is None:
        return None
    known = _KNOWN.setdefault(module, {})
    if owner not in known:
        known[owner] = _layers(module, owner)
    return known[owner].get(function.attr)


def _layers(module: "Module", owner: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    conflicting: set[str] = set()
    for node in (each for method in owner.body if isinstance(method, ast.FunctionDef) for each in ast.walk(method)):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                layer = _class(module, node.value)
                if found.setdefault(target.attr, layer) != layer:
                    conflicting.add(target.attr)
    return {name: layer for name, layer in found.items() if layer and name not in conflicting}


def _class(module: "Module", value: ast.expr) -> str:
    """`Conv2d` for `nn.Conv2d(…)`; of a `Sequential` nothing; empty for what is none of torch's."""
    name = module.name(value.func) if isinstance(value, ast.Call) else None
    return name.removeprefix("torch.nn.") if name is not None and name.startswith("torch.nn.") else ""
