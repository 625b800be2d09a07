"""The strides of new memory: what `clone`, `empty_like`, `contiguous`, `to` and elementwise kernels choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stridewise.layout.errors import LayoutError
from stridewise.layout.formats import (
    contiguous_strides,
    format_strides,
    is_contiguous,
    strides_in_order,
    suggested_format,
)
from stridewise.layout.memory import is_non_overlapping_and_dense
from stridewise.layout.model import Layout, MemoryFormat, Outcome


def preserve_strides(layout: Layout) -> tuple[int, ...]:
    """Compute the strides that `torch.preserve_format` gives: of `clone`, `empty_like`, and `to` another dtype.

    A dense layout keeps its strides, those of size-1 dimensions too. Any other gets dense strides in the
    order that an elementwise kernel would give its result (`at::infer_dense_strides`).
    """
    if is_non_overlapping_and_dense(layout):
        return layout.strides
    return strides_in_order(layout.sizes, kernel_order(layout.sizes, [layout.strides])[::-1])


def clone(layout: Layout, memory_format: MemoryFormat | Literal["preserve"] = "preserve") -> Layout:
    """Give the layout of `Tensor.clone`, and of `torch.empty_like`, for a memory format."""
    if memory_format == "preserve":
        return Layout(layout.sizes, preserve_strides(layout))
    return Layout(layout.sizes, format_strides(layout.sizes, memory_format))


def contiguous(layout: Layout, memory_format: MemoryFormat = "contiguous") -> Outcome:
    """Do what `Tensor.contiguous` does: copy, unless it is dense in that format, whatever its size-1 strides."""
    if is_contiguous(layout, memory_format):
        return Outcome(layout, copied=False)
    return Outcome(clone(layout, memory_format), copied=True)


def to(layout: Layout, memory_format: MemoryFormat) -> Outcome:
    """Do what `Tensor.to(memory_format=...)` does: copy, unless kernels pick that format for it already.

    Unlike `contiguous`, it leaves a layout with gaps alone, and gives size-1 dimensions the format's strides
    (`to_will_alias` in TensorConversions.cpp).
    """
    if suggested_format(layout) == memory_format:
        return Outcome(layout, copied=False)
    return Outcome(clone(layout, memory_format), copied=True)


def elementwise(operands: Sequence[Layout]) -> Layout:
    """Give the layout of a new elementwise result (`+`, `relu`, `where` …): `TensorIterator` in aten.

    `operands` in their order; a Python number is `Layout((), ())`. The order counts: the first operand whose
    strides tell two dimensions apart decides. On the CPU an operand that is not of the result's dtype is
    converted first: give what `clone` gives for it. Raises `LayoutError` for sizes that do not broadcast.
    """
    sizes = broadcast_sizes([operand.sizes for operand in operands])
    if all(operand.sizes == sizes for operand in operands):
        strides = _shared_strides(operands)
        if strides is not None:
            return Layout(sizes, strides)
    order = kernel_order(sizes, [_broadcast_strides(operand, sizes) for operand in operands])[::-1]
    row_major = order == list(range(len(sizes)))
    return Layout(sizes, contiguous_strides(sizes) if row_major else strides_in_order(sizes, order))


def broadcast_sizes(sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Broadcast sizes against each other, as `torch.broadcast_shapes`."""
    if not sizes:
        raise LayoutError("no operands")
    ndim = max(len(each) for each in sizes)
    padded = [(1,) * (ndim - len(each)) + each for each in sizes]
    result = []
    for dim, column in enumerate(zip(*padded, strict=True)):
        different = set(column) - {1}
        if len(different) > 1:
            raise LayoutError(f"sizes {sorted(different)} do not broadcast in dimension {dim}")
        result.append(different.pop() if different else 1)
    return tuple(result)


def kernel_order(sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> list[int]:
    """Order the dimensions for a kernel's loops, innermost first (`TensorIteratorBase::reorder_dimensions`).

    An insertion sort that may meet dimensions it cannot compare. It looks past those, and exchanges instead
    of inserting, so its result is more than a matter of the strides: keep the steps.
    """
    order = list(reversed(range(len(sizes))))
    for position in range(1, len(order)):
        at = position
        for before in reversed(range(position)):
            verdict = _compare(order[before], order[at], sizes, strides)
            if verdict < 0:
                break
            if verdict > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order


def _compare(inner: int, outer: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> int:
    """Say -1 if `inner` belongs inside of `outer`, 1 if outside, 0 if no operand tells."""
    for each in strides:
        if each[inner] == 0 or each[outer] == 0:
            continue
        if each[inner] != each[outer]:
            return -1 if each[inner] < each[outer] else 1
        if sizes[inner] > sizes[outer]:
            return 1
    return 0


def _shared_strides(operands: Sequence[Layout]) -> tuple[int, ...] | None:
    """Give the strides of a result whose operands, of equal sizes, agree (`compute_fast_setup_type`), else None."""
    sizes = operands[0].sizes
    formats: tuple[MemoryFormat, ...] = ("contiguous", "channels_last")
    for memory_format in formats:
        if all(is_contiguous(operand, memory_format) for operand in operands):
            return format_strides(sizes, memory_format)
    if all(is_non_overlapping_and_dense(operand) for operand in operands):
        strides = {operand.strides for operand in operands}
        if len(strides) == 1:
            return strides.pop()
    return None


def _broadcast_strides(operand: Layout, sizes: tuple[int, ...]) -> tuple[int, ...]:
    added = len(sizes) - operand.ndim
    return (0,) * added + tuple(
        0 if own == 1 and size != 1 else stride
        for own, size, stride in zip(operand.sizes, sizes[added:], operand.strides, strict=True)
    )
