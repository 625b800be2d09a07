"""Views of a part of the elements: a position, a range, a diagonal, a sliding window, several parts."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.layout.errors import LayoutError
from stridewise.layout.model import Layout, wrap_dim


def select(layout: Layout, dim: int, index: int) -> Layout:
    """Take one position of a dimension and drop the dimension, as `Tensor.select`."""
    at = _existing_dim(layout, dim)
    size, stride = layout.sizes[at], layout.strides[at]
    if not -size <= index < size:
        raise LayoutError(f"index {index} is out of range for dimension {at} of size {size}")
    return Layout(
        layout.sizes[:at] + layout.sizes[at + 1 :],
        layout.strides[:at] + layout.strides[at + 1 :],
        layout.offset + index % size * stride,
    )


def slice_dim(layout: Layout, dim: int, start: int | None = None, end: int | None = None, step: int = 1) -> Layout:
    """Take every `step`-th position from `start` to before `end`, cut to the size, as `x[start:end:step]`."""
    at = _existing_dim(layout, dim)
    if step < 1:
        raise LayoutError(f"step {step}: torch slices only forward")
    size, stride = layout.sizes[at], layout.strides[at]
    first, last, _ = slice(start, end).indices(size)
    length = max(last - first, 0)
    return _with_dim(layout, at, (length + step - 1) // step, stride * step, first * stride)


def narrow(layout: Layout, dim: int, start: int, length: int) -> Layout:
    """Take `length` positions from `start`, as `Tensor.narrow`; unlike a slice it must lie inside."""
    at = _existing_dim(layout, dim)
    size, stride = layout.sizes[at], layout.strides[at]
    first = start + size if start < 0 else start
    if length < 0 or not 0 <= first <= size - length:
        raise LayoutError(f"{length} positions from {start} do not lie in dimension {at} of size {size}")
    return _with_dim(layout, at, length, stride, first * stride)


def unfold(layout: Layout, dim: int, size: int, step: int) -> Layout:
    """Slide a window over a dimension, as `Tensor.unfold`: the window is a new last dimension; windows may overlap."""
    at = wrap_dim(dim, layout.ndim)
    whole = layout.sizes[at] if layout.ndim else 1
    stride = layout.strides[at] if layout.ndim else 1
    if not 0 <= size <= whole or step < 1:
        raise LayoutError(f"windows of {size} every {step} do not fit dimension {at} of size {whole}")
    windows = layout if not layout.ndim else _with_dim(layout, at, (whole - size) // step + 1, stride * step, 0)
    return Layout((*windows.sizes, size), (*windows.strides, stride), layout.offset)


def diagonal(layout: Layout, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    """Take a diagonal of two dimensions as a new last one, as `Tensor.diagonal`; a positive `offset` lies above."""
    row, column = _existing_dim(layout, dim1), _existing_dim(layout, dim2)
    if row == column:
        raise LayoutError(f"a diagonal needs two dimensions, not {row} twice")
    below, above = max(-offset, 0), max(offset, 0)
    length = max(min(layout.sizes[row] - below, layout.sizes[column] - above), 0)
    start = below * layout.strides[row] + above * layout.strides[column] if length else 0
    kept = [at for at in range(layout.ndim) if at not in (row, column)]
    return Layout(
        (*(layout.sizes[at] for at in kept), length),
        (*(layout.strides[at] for at in kept), layout.strides[row] + layout.strides[column]),
        layout.offset + start,
    )


def as_strided(layout: Layout, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None) -> Layout:
    """Lay any sizes and strides over the storage, as `Tensor.as_strided`.

    Whether the storage is large enough is for the caller to see: compare it with `storage_needed`.
    """
    return Layout(tuple(sizes), tuple(strides), layout.offset if offset is None else offset)


def split(layout: Layout, sizes: int | Sequence[int], dim: int = 0) -> tuple[Layout, ...]:
    """Cut a dimension into parts of one size, or of the sizes given, as `Tensor.split`."""
    at = _existing_dim(layout, dim)
    whole = layout.sizes[at]
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and whole):
            raise LayoutError(f"parts of size {sizes} do not make up dimension {at} of size {whole}")
        starts = range(0, whole, sizes) if whole else (0,)
        return tuple(narrow(layout, at, start, min(sizes, whole - start)) for start in starts)
    if sum(sizes) != whole or any(size < 0 for size in sizes):
        raise LayoutError(f"parts of sizes {tuple(sizes)} do not make up dimension {at} of size {whole}")
    return tuple(narrow(layout, at, sum(sizes[:part]), size) for part, size in enumerate(sizes))


def chunk(layout: Layout, chunks: int, dim: int = 0) -> tuple[Layout, ...]:
    """Cut a dimension into at most `chunks` parts, all but the last alike, as `Tensor.chunk`."""
    at = _existing_dim(layout, dim)
    if chunks < 1:
        raise LayoutError(f"{chunks} chunks: at least 1 is needed")
    whole = layout.sizes[at]
    return split(layout, -(-whole // chunks), at) if whole else (layout,) * chunks


def unbind(layout: Layout, dim: int = 0) -> tuple[Layout, ...]:
    """Take each position of a dimension as a part of its own, as `Tensor.unbind`."""
    at = _existing_dim(layout, dim)
    return tuple(select(layout, at, index) for index in range(layout.sizes[at]))


def _existing_dim(layout: Layout, dim: int) -> int:
    if not layout.ndim:
        raise LayoutError("a tensor without dimensions has no part")
    return wrap_dim(dim, layout.ndim)


def _with_dim(layout: Layout, at: int, size: int, stride: int, shift: int) -> Layout:
    """Replace one dimension's size and stride, and move the start by `shift` elements."""
    return Layout(
        (*layout.sizes[:at], size, *layout.sizes[at + 1 :]),
        (*layout.strides[:at], stride, *layout.strides[at + 1 :]),
        layout.offset + shift,
    )
