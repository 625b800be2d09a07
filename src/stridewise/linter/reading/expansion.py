"""Sizes as source writes them, and which expansions repeat nothing for all that these tell."""

import ast
from collections.abc import Collection, Sequence

from stridewise.linter.facts.value import Value
from stridewise.linter.module import Module

EXPANSIONS = ("expand", "expand_as", "broadcast_to")
_MAKERS = frozenset(("zeros", "ones", "empty", "rand", "randn", "full"))
"""Functions that are handed sizes, one by one or in a tuple."""
_SHAPED = frozenset(("view", "reshape", "new_zeros", "new_ones", "new_empty", "new_full"))
"""Methods that are."""


def flat(sizes: Sequence[ast.expr]) -> list[ast.expr]:
    """Sizes given one by one, or in a tuple."""
    return [item for each in sizes for item in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])]


def is_one(node: ast.expr) -> bool:
    """Whether a size is written as 1."""
    return isinstance(node, ast.Constant) and node.value == 1


def is_minus_one(node: ast.expr) -> bool:
    """Whether a size is written as -1: the one that the dimension has."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and is_one(node.operand)


def repeats_nothing(module: Module, sizes: Sequence[ast.expr], known: Collection[str]) -> bool:
    """Whether all sizes of an `expand` are 1, -1, or among those that the tensor was made with."""
    return bool(sizes) and all(is_one(size) or is_minus_one(size) or module.text(size) in known for size in flat(sizes))


def sizes_in(module: Module, node: ast.expr) -> set[str]:
    """What is handed to the calls in an expression, as text: the sizes of what `torch.arange(n)` makes are there."""
    given = [each for call in ast.walk(node) if isinstance(call, ast.Call) for each in flat(call.args)]
    return {module.text(each) for each in given if not isinstance(each, ast.Constant)}


def made_with(module: Module, value: Value) -> list[ast.expr] | None:
    """The sizes that a tensor was made with, first to last; None where source does not write them all."""
    call = value.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    full = module.name(call.func)
    name = (full or "").removeprefix("torch.")
    if name not in _MAKERS and (full is not None or value.op not in _SHAPED):
        return None
    sizes = flat(call.args[:1] if "full" in (value.op or "") else call.args)
    return None if not sizes or any(isinstance(size, ast.Starred) for size in sizes) else sizes


def has_size_one(module: Module, value: Value) -> bool:
    """Whether a tensor, or one that it came from, was made with a dimension of size 1."""
    each: Value | None = value
    while each is not None:
        if each.op == "unsqueeze" or any(map(is_one, made_with(module, each) or ())):
            return True
        each = each.of
    return False


def is_whole(module: Module, value: Value) -> bool:
    """Whether what `expand` or its like gave has the sizes of what went in: nothing is repeated then."""
    call = value.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if module.name(call.func) is None:
        base, given = call.func.value, call.args
    elif call.args:
        base, given = call.args[0], call.args[1:]
    else:
        return False
    if len(given) == 1 and module.text(given[0]).lstrip("*") in _own_sizes(module.text(base), value.op):
        return True
    made = None if value.of is None else made_with(module, value.of)
    sizes = flat(given)
    if _are_own(module, sizes, module.text(base)):
        return True
    if made is None or len(sizes) < len(made):
        return repeats_nothing(module, given, ())
    extra = len(sizes) - len(made)
    return all(map(is_one, sizes[:extra])) and all(
        is_one(size) or is_minus_one(size) or module.text(size) == module.text(own)
        for size, own in zip(sizes[extra:], made, strict=True)
    )


def _are_own(module: Module, sizes: Sequence[ast.expr], base: str) -> bool:
    """Whether sizes are those of the tensor, each at its place: `x.expand(x.size(0), -1, x.shape[2])`."""
    rank = len(sizes)
    is_all = False
    """Whether the tensor has so many dimensions, so that none is put in front: expand adds none of size -1."""
    for place, size in enumerate(sizes):
        if is_one(size) or is_minus_one(size):
            is_all = is_all or (place == 0 and is_minus_one(size))
            continue
        text = module.text(size)
        at = next(
            (each for each in (place, place - rank) if text in (f"{base}.size({each})", f"{base}.shape[{each}]")), None
        )
        if at is None:
            return False
        is_all = is_all or at in (rank - 1, -rank)
    return is_all


def _own_sizes(base: str, op: str | None) -> Sequence[str]:
    return (base,) if op == "expand_as" else (f"{base}.shape", f"{base}.size()")
