"""What tells a tensor from what else has methods of the same names."""

import ast
from typing import TYPE_CHECKING

from stridewise.linter.facts.value import UNKNOWN, Value

if TYPE_CHECKING:
    from stridewise.linter.module import Module

MODULE_METHODS = frozenset(
    ("to", "float", "half", "double", "bfloat16", "cpu", "cuda", "xpu", "type", "requires_grad_")
)
"""Methods of tensors that a `torch.nn.Module` has as well: it changes itself, and returns itself."""


def is_tensor(module: "Module", value: Value) -> bool:
    """Whether a value is a tensor for sure: that something was moved or cast does not tell it from a module."""
    if is_array(module, value):
        return False
    return before_casts(value).kind == "tensor"


def before_casts(value: Value) -> Value:
    """What a value was before it was moved or cast. UNKNOWN if nothing is known of that."""
    while value.op in MODULE_METHODS:
        value = value.of or UNKNOWN
    return value


def is_array(module: "Module", value: Value) -> bool:
    """Whether a value is numpy's, or was made from what numpy gave."""
    made: Value | None = value
    while made is not None:
        if made.kind == "array":
            return True
        if isinstance(made.node, ast.Call) and (module.name(made.node.func) or "").startswith("numpy."):
            return True
        made = made.of
    return False


def is_named(node: ast.expr) -> bool:
    """Whether an expression is a name, or an attribute or an element of what is one: something that lasts."""
    return root_name(node) is not None


def root_name(node: ast.expr) -> str | None:
    """The name that an expression starts with: `x` of `x.grad[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def defines(module: "Module", name: str) -> bool:
    """Whether a class or a function of this file has that name for something of its own."""
    return any(each.name == name for each in module.nodes(ast.FunctionDef)) or any(
        isinstance(each.ctx, ast.Store) for each in module.attributes(name)
    )
