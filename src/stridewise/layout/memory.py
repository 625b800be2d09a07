"""What a layout occupies in memory: its span, its holes, and the order of its dimensions."""

from __future__ import annotations

from math import prod

from stridewise.layout.model import Layout, numel, steps
from stridewise.layout.overlap import is_overlapping

_COUNTED_SPAN = 1 << 24


def span(layout: Layout) -> int:
    """Count the elements from the lowest to the highest that is addressed, both included; 0 if empty."""
    if layout.is_empty:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(layout.sizes, layout.strides, strict=True))


def storage_needed(layout: Layout) -> int:
    """Count the elements that its storage must hold, offset included: `computeStorageNbytes` in aten; 0 if empty."""
    return 0 if layout.is_empty else layout.offset + span(layout)


def memory_order(layout: Layout) -> tuple[int, ...]:
    """Order the dimensions that have size > 1 and stride ≠ 0, by descending stride; ties keep dimension order."""
    moving = [dim for dim in range(layout.ndim) if layout.sizes[dim] > 1 and layout.strides[dim]]
    return tuple(sorted(moving, key=lambda dim: -layout.strides[dim]))


def is_expanded(layout: Layout) -> bool:
    """Tell whether a dimension of size > 1 has stride 0, so that its indices share their elements."""
    if layout.is_empty:
        return False
    return any(size > 1 and stride == 0 for size, stride in zip(layout.sizes, layout.strides, strict=True))


def is_gapped(layout: Layout) -> bool:
    """Tell whether an element inside the span is not addressed.

    Exact: while the smaller strides fill an interval, a stride up to the interval's length extends it;
    a larger one leaves a hole just behind the interval that no combination of strides reaches.
    """
    if layout.is_empty:
        return False
    filled = 1
    for stride, size in steps(layout):
        if stride > filled:
            return True
        filled += (size - 1) * stride
    return False


def is_non_overlapping_and_dense(layout: Layout) -> bool:
    """Tell whether each element of the span has exactly one index, as `Tensor.is_non_overlapping_and_dense`.

    An empty tensor counts as dense, as in torch.
    """
    if layout.is_empty:
        return True
    return not is_expanded(layout) and span(layout) == numel(layout) and not is_gapped(layout)


def stored(layout: Layout) -> int:
    """Count the different elements that are addressed.

    Exact, but for layouts that overlap other than by stride 0, have gaps, and span over 16 million elements:
    for those it is the number of indices or the span, whichever is smaller.
    """
    if layout.is_empty:
        return 0
    if not is_gapped(layout):
        return span(layout)
    moving = steps(layout)
    indices = prod(size for _, size in moving)
    once = Layout(tuple(size for _, size in moving), tuple(stride for stride, _ in moving))
    if not is_overlapping(once):
        return indices
    if span(once) > _COUNTED_SPAN:
        return min(indices, span(once))
    return _addresses(moving).bit_count()


def _addresses(moving: list[tuple[int, int]]) -> int:
    """Mark each addressed element as one bit of an integer."""
    marked = 1
    for stride, size in moving:
        covered = 1
        while covered < size:
            more = min(covered, size - covered)
            marked |= marked << (more * stride)
            covered += more
    return marked
