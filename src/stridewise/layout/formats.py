"""Memory formats: the strides they have, and which one a layout is in.

A format is an order of dimensions, outermost first. There are two questions to ask of a layout, and torch
answers them differently: is it dense in that order (`is_contiguous`), and which order will kernels give
their results (`suggested_format`). Dimensions of size 1 are free in the first and count in the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.layout.errors import LayoutError
from stridewise.layout.model import Layout, MemoryFormat

_CHANNELS_LAST: dict[int, tuple[MemoryFormat, tuple[int, ...]]] = {
    4: ("channels_last", (0, 2, 3, 1)),
    5: ("channels_last_3d", (0, 2, 3, 4, 1)),
}


def format_order(memory_format: MemoryFormat, ndim: int) -> tuple[int, ...] | None:
    """Order the dimensions of a memory format, outermost first; None where it has no meaning for `ndim`."""
    if memory_format == "contiguous":
        return tuple(range(ndim))
    name, order = _CHANNELS_LAST.get(ndim, (None, None))
    return order if name == memory_format else None


def strides_in_order(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Compute dense strides for dimensions in `order`, outermost first.

    Behind a size of 0 strides are 0, as in all torch functions but the one for `contiguous_strides`.
    """
    strides = [0] * len(sizes)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= sizes[dim]
    return tuple(strides)


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Compute row-major strides, as `torch.empty(sizes)` has them. A size of 0 counts as 1 in them."""
    return strides_in_order([max(size, 1) for size in sizes], range(len(sizes)))


def channels_last_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Compute the strides of `torch.empty(sizes, memory_format=torch.channels_last)`, or `channels_last_3d` for 5-D.

    Raises `LayoutError` for other than 4 or 5 dimensions. `get_channels_last_strides_2d` and `_3d` in
    c10/core/MemoryFormat.h.
    """
    if len(sizes) not in _CHANNELS_LAST:
        raise LayoutError(f"channels_last needs 4 or 5 dimensions, not {len(sizes)}")
    return strides_in_order(sizes, _CHANNELS_LAST[len(sizes)][1])


def format_strides(sizes: Sequence[int], memory_format: MemoryFormat) -> tuple[int, ...]:
    """Compute the dense strides of `sizes` in a memory format, or raise `LayoutError` where it needs another rank."""
    order = format_order(memory_format, len(sizes))
    if order is None:
        raise LayoutError(f"{memory_format} does not exist for {len(sizes)} dimensions")
    return contiguous_strides(sizes) if memory_format == "contiguous" else strides_in_order(sizes, order)


def is_contiguous(layout: Layout, memory_format: MemoryFormat = "contiguous") -> bool:
    """Tell whether it is dense in that order, as `Tensor.is_contiguous(memory_format=...)`.

    Strides of dimensions of size 1 do not count. An empty tensor is always `contiguous`; for the
    channels_last formats torch compares its strides all the same (`_compute_channels_last_contiguous_2d`).
    """
    order = format_order(memory_format, layout.ndim)
    if order is None:
        return False
    if memory_format == "contiguous" and layout.is_empty:
        return True
    expected = 1
    for dim in reversed(order):
        size = layout.sizes[dim]
        if size == 1:
            continue
        if layout.strides[dim] != expected:
            return False
        expected *= size
    return True


def suggested_format(layout: Layout) -> MemoryFormat:
    """Tell which memory format kernels pick for it: `Tensor.suggest_memory_format` in C++.

    This is not `is_contiguous(layout, "channels_last")`. Strides of size-1 dimensions count, gaps are
    allowed, and what could be either is `contiguous` (`is_channels_last_strides_2d_s4` in c10/core/MemoryFormat.h).
    So an image that is cut from a channels_last batch by `x[0][None]` is dense in channels_last, yet gets `contiguous`.
    """
    memory_format, order = _CHANNELS_LAST.get(layout.ndim, ("contiguous", ()))
    if memory_format == "contiguous" or layout.is_empty:
        return "contiguous"
    channel_stride = layout.strides[1]
    if channel_stride == 0:
        return "contiguous"
    floor = 0
    for dim in reversed(order):
        stride = layout.strides[dim]
        if stride < floor or (dim == 0 and floor == channel_stride):
            return "contiguous"
        floor = stride * layout.sizes[dim]
    return memory_format
