"""What a copy changes, from the strides of both sides or from the indices that a kernel reads and writes. No torch."""

import ast
from collections.abc import Mapping

from stridewise import layout
from stridewise.layout import Layout
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.results.compiled import Change, Strides


def change(read: Strides | None, written: Strides | None, read_index: str, written_index: str) -> Change | None:
    """What a copy between these does; None if it can't be told."""
    before, after = as_layout(read), as_layout(written)
    if before is not None and after is not None and before.sizes == after.sizes:
        return layout.change(before.sizes, before.strides, after.strides) or "none"
    return _of_indices(read_index, written_index)


def as_layout(strides: Strides | None) -> Layout | None:
    """The layout, where all sizes and strides are numbers."""
    if strides is None or not all(isinstance(number, int) for number in (*strides.sizes, *strides.strides)):
        return None
    sizes = tuple(number for number in strides.sizes if isinstance(number, int))
    return Layout(sizes, tuple(number for number in strides.strides if isinstance(number, int)))


def differ(one: Strides, other: Strides) -> bool:
    """Whether two tensors of equal sizes lie differently, but for dimensions of size 1 and 0."""
    if one.sizes != other.sizes or 0 in one.sizes:
        return False
    rows = zip(one.sizes, one.strides, other.strides, strict=True)
    return any(first != second for size, first, second in rows if size != 1)


def _of_indices(read: str, written: str) -> Change | None:
    """The same from two sums such as `x2 + 256*x1`: whose variables step through memory in which order."""
    before, after = _coefficients(read), _coefficients(written)
    if before is None or after is None:
        return None
    before, after = _without_inner(before), _without_inner(after)
    if before == after:
        return "none"
    if not after.keys() <= before.keys():
        return "materialize"
    orders = [sorted(after, key=lambda name, of=of: (of.get(name, 0), name)) for of in (before, after)]  # type: ignore[misc]
    if orders[0] != orders[1]:
        return "reorder"
    gaps = {name: before[name] - after[name] for name in after}
    return "pack" if all(gap >= 0 for gap in gaps.values()) else "unpack"


def _without_inner(found: Mapping[str, int]) -> dict[str, int]:
    """Without the variables that go through a vector, which step as the loop around them does."""
    return {name: step for name, step in found.items() if not name.endswith("_inner")}


def _coefficients(index: str) -> dict[str, int] | None:
    """`{"x2": 1, "x1": 256}`; None for what is no sum of multiples."""
    try:
        tree = ast.parse(index, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    found: dict[str, int] = {}
    return found if _add(tree, 1, found) else None


def _add(node: ast.expr, factor: int, found: dict[str, int]) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _add(node.left, factor, found) and _add(node.right, factor, found)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for number, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(number, ast.Constant) and isinstance(number.value, int):
                return _add(other, factor * number.value, found)
        return False
    if isinstance(node, ast.Name):
        found[node.id] = found.get(node.id, 0) + factor
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def moved_bytes(read: Strides | None, written: Strides | None) -> int | None:
    """Bytes that a copy reads and writes; elements that are read through stride 0 count once. None where unknown."""
    after, before = as_layout(written), as_layout(read)
    if after is None or written is None or written.dtype is None:
        return None
    writes = ITEM_SIZES.get(written.dtype)
    reads = ITEM_SIZES.get(read.dtype) if read is not None and read.dtype else writes
    if writes is None or reads is None:
        return None
    source = before if before is not None and before.sizes == after.sizes else after
    return layout.bytes_moved(after.sizes, source.strides, reads, after.strides, writes)
