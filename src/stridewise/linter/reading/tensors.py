"""What tells a tensor from what else has methods of the same names."""

import ast
import re
from typing import TYPE_CHECKING

from stridewise.linter.facts.value import UNKNOWN, Value
from stridewise.linter.names import last_name

if TYPE_CHECKING:
    from stridewise.linter.module import Module

MODULE_METHODS = frozenset(
    ("to", "float", "half", "double", "bfloat16", "cpu", "cuda", "xpu", "type", "requires_grad_")
)
"""Methods of tensors that a `torch.nn.Module` has as well: it changes itself, and returns itself."""

_TENSOR_NAMES = re.compile(
    r"(?:x|y|z|q|k|v)\d*|(?:x|y)_\w+"
    r"|(?:.*_)?(?:tensors?|xs|masks?|logits|hidden|hidden_states?|inputs?|outputs?|out|images?|imgs?|pixels|pixel_values"
    r"|labels?|targets?|features?|feats?|embeddings?|embeds?|emb|input_ids|position_ids|token_ids|weights?|bias|grads?"
    r"|gradients?|probs|attn|attention|coords|coordinates|boxes|patches|latents?|noise|residual|indices)\d*"
)
_ONLY_ARRAYS = frozenset(
    (
        *("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "stride", "dim", "numel", "data_ptr"),
        *("element_size", "storage_offset", "is_contiguous", "contiguous", "unsqueeze", "expand_as"),
        *("detach", "masked_fill", "new_zeros"),
    )
)
"""What hardly anything but a tensor, or an array, is asked for."""


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


def is_tensor_name(name: str) -> bool:
    """Whether a name is one that tensors have: `x`, `mask`, `hidden_states`."""
    return _TENSOR_NAMES.fullmatch(name) is not None


def seems_tensor(module: "Module", node: ast.expr) -> bool:
    """Whether something says that an expression of which nothing is known is a tensor: its name, or how it is used."""
    named = node.value if isinstance(node, ast.Subscript) else node
    if is_tensor_name(last_name(named)):
        return True
    scope = module.scope(node)
    if module.value(node).op == "parameter" and getattr(scope, "name", None) == "forward":
        return True
    return bool(asked_of(scope, node) & _ONLY_ARRAYS)


def asked_of(scope: ast.AST, node: ast.expr) -> set[str]:
    """The attributes of the same expression in a function."""
    text = ast.dump(node)
    asked = (each for each in ast.walk(scope) if isinstance(each, ast.Attribute))
    return {each.attr for each in asked if ast.dump(each.value) == text}


def is_dtype(module: "Module", node: ast.expr) -> bool:
    """Whether an argument is a dtype by its name: `torch.float16`, `x.dtype`, `compute_dtype`."""
    name = module.name(node)
    return (name is not None and name.startswith("torch.")) or last_name(node).endswith("dtype")
