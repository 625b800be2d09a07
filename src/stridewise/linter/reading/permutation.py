"""In which order calls of `transpose` and `permute` put the dimensions of a tensor."""

import ast
from collections.abc import Sequence

from stridewise.linter.reading.sizes import dimension


def order_of(calls: Sequence[ast.expr], rank: int) -> tuple[int, ...] | None:
    """Which dimension of a tensor of a rank stands where after some calls in a row; None if that is not told."""
    order = tuple(range(rank))
    for call in calls:
        step = _step(call, rank)
        if step is None:
            return None
        order = tuple(order[at] for at in step)
    return order


def _step(node: ast.expr, rank: int) -> list[int] | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return None
    given: Sequence[ast.expr] = node.args
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    dimensions = [dimension(each, rank) for each in given]
    if None in dimensions:
        return None
    known = [each for each in dimensions if each is not None]
    if node.func.attr == "permute":
        return known if sorted(known) == list(range(rank)) else None
    if len(known) != 2:
        return None
    first, second = known
    swapped = list(range(rank))
    swapped[first], swapped[second] = second, first
    return swapped
