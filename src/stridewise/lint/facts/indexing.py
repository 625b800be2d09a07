"""What an index of a tensor gives: a view for numbers and slices, a copy for tensors and lists."""

import ast
from collections.abc import Mapping

from stridewise.lint.facts.value import Memory, State, Value


def part_of(node: ast.Subscript, base: Value, index: Value, values: Mapping[ast.expr, Value]) -> Value:
    """The value of `base[…]`. `values` tells what the names in the index are, where that is known."""
    if base.kind == "other":
        return Value(op="element", node=node)
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    kinds = [_kind_of(item, values) for item in items]
    memory: Memory = "view"
    if "copy" in kinds:
        memory = "fresh"
    elif "unknown" in kinds:
        memory = "unknown"
    state, sure = State.UNKNOWN, False
    if memory == "view":
        if "stepped" in kinds:
            state, sure = State.GAPPED, True
        elif all(kind in ("all", "new", "rest") for kind in kinds):
            state, sure = base.state, base.sure
        elif _is_leading(kinds):
            if base.is_contiguous:
                state, sure = State.CONTIGUOUS, True
        elif base.is_contiguous:
            state, sure = State.GAPPED, True
    kind = base.kind if base.kind in ("tensor", "array") else "unknown"
    return Value(kind, state, sure, "index", node, base, memory)


def _kind_of(item: ast.expr, values: Mapping[ast.expr, Value]) -> str:
    """What an item of an index does: `all` of a dimension, a `part`, one `place`, a `new` dimension, a `copy` …"""
    match item:
        case ast.Slice(lower=None, upper=None, step=None):
            return "all"
        case ast.Slice(step=None | ast.Constant(value=1)):
            return "part"
        case ast.Slice(step=ast.Constant(value=int())):
            return "stepped"
        case ast.Slice():
            return "unknown"
        case ast.Constant(value=None):
            return "new"
        case ast.Constant(value=bool()):
            return "copy"
        case ast.Constant(value=int()) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return "place"
        case ast.Constant(value=value) if value is ...:
            return "rest"
        case ast.List() | ast.ListComp() | ast.Compare():
            return "copy"
    return "copy" if item in values and values[item].kind in ("tensor", "array") else "unknown"


def _is_leading(kinds: list[str]) -> bool:
    """Whether an index takes part of the first dimension, after places in those before, and all of the rest."""
    rest = [kind for kind in kinds if kind != "new"]
    while rest and rest[0] == "place":
        rest.pop(0)
    if rest and rest[0] == "part":
        rest.pop(0)
    return all(kind in ("all", "rest") for kind in rest)
