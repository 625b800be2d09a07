"""Views that reorder, add, drop or repeat dimensions. None moves an element; the offset stays."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.layout.errors import LayoutError
from stridewise.layout.model import Layout, wrap_dim


def permute(layout: Layout, dims: Sequence[int]) -> Layout:
    """Reorder the dimensions as `Tensor.permute`: `dims[i]` becomes dimension i."""
    order = [wrap_dim(dim, layout.ndim) for dim in dims]
    if sorted(order) != list(range(layout.ndim)):
        raise LayoutError(f"{tuple(dims)} is no permutation of {layout.ndim} dimensions")
    return Layout(tuple(layout.sizes[dim] for dim in order), tuple(layout.strides[dim] for dim in order), layout.offset)


def transpose(layout: Layout, dim0: int, dim1: int) -> Layout:
    """Swap two dimensions, as `Tensor.transpose`."""
    first, second = wrap_dim(dim0, layout.ndim), wrap_dim(dim1, layout.ndim)
    order = list(range(layout.ndim))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(layout, order)


def swapaxes(layout: Layout, axis0: int, axis1: int) -> Layout:
    """Swap two dimensions, as `Tensor.swapaxes`."""
    return transpose(layout, axis0, axis1)


def t(layout: Layout) -> Layout:
    """Transpose a matrix, as `Tensor.t`; with fewer than two dimensions nothing changes."""
    if layout.ndim > 2:
        raise LayoutError(f"t needs at most 2 dimensions, not {layout.ndim}")
    return permute(layout, range(layout.ndim)[::-1])


def mT(layout: Layout) -> Layout:
    """Swap the last two dimensions, as `Tensor.mT`; without dimensions nothing changes."""
    if layout.ndim == 1:
        raise LayoutError("mT needs at least 2 dimensions, not 1")
    return transpose(layout, -2, -1) if layout.ndim else layout


def movedim(layout: Layout, source: int | Sequence[int], destination: int | Sequence[int]) -> Layout:
    """Move dimensions to other places, the rest keeping their order, as `Tensor.movedim`."""
    sources = [wrap_dim(dim, layout.ndim) for dim in ([source] if isinstance(source, int) else source)]
    places = [wrap_dim(dim, layout.ndim) for dim in ([destination] if isinstance(destination, int) else destination)]
    if len(sources) != len(places) or len(set(sources)) < len(sources) or len(set(places)) < len(places):
        raise LayoutError(f"movedim from {source} to {destination}: not one place for each dimension")
    if not layout.ndim:
        return layout
    moved = dict(zip(places, sources, strict=True))
    rest = iter(dim for dim in range(layout.ndim) if dim not in sources)
    return permute(layout, [moved[place] if place in moved else next(rest) for place in range(layout.ndim)])


def unsqueeze(layout: Layout, dim: int) -> Layout:
    """Add a dimension of size 1, as `Tensor.unsqueeze`, with the stride that steps over the one behind it."""
    at = wrap_dim(dim, layout.ndim + 1)
    stride = layout.sizes[at] * layout.strides[at] if at < layout.ndim else 1
    return Layout(
        (*layout.sizes[:at], 1, *layout.sizes[at:]),
        (*layout.strides[:at], stride, *layout.strides[at:]),
        layout.offset,
    )


def squeeze(layout: Layout, dim: int | Sequence[int] | None = None) -> Layout:
    """Drop dimensions of size 1, as `Tensor.squeeze`: those among `dim`, or all."""
    if dim is None:
        candidates = set(range(layout.ndim))
    else:
        dims = [dim] if isinstance(dim, int) else list(dim)
        candidates = {wrap_dim(each, layout.ndim) for each in dims}
        if len(candidates) < len(dims):
            raise LayoutError(f"squeeze of {dim}: a dimension appears twice")
    kept = [at for at in range(layout.ndim) if at not in candidates or layout.sizes[at] != 1]
    return Layout(tuple(layout.sizes[at] for at in kept), tuple(layout.strides[at] for at in kept), layout.offset)


def expand(layout: Layout, sizes: Sequence[int]) -> Layout:
    """Repeat dimensions of size 1 through stride 0, as `Tensor.expand`; -1 keeps a size (`at::inferExpandGeometry`)."""
    added = len(sizes) - layout.ndim
    if added < 0:
        raise LayoutError(f"{tuple(sizes)} are too few sizes to expand {layout.ndim} dimensions to")
    if -1 in sizes[:added]:
        raise LayoutError(f"-1 in {tuple(sizes)} stands for a dimension that does not exist")
    new_sizes, new_strides = list(sizes), [0] * len(sizes)
    for at in reversed(range(len(sizes))):
        if at >= added:
            size, stride = layout.sizes[at - added], layout.strides[at - added]
        elif layout.ndim:
            # A new dimension is a size-1 dimension outside of the next; its stride stays only if its size is 1.
            size, stride = 1, new_sizes[at + 1] * new_strides[at + 1]
        else:
            size, stride = 1, 0
        if sizes[at] in (-1, size):
            new_sizes[at], new_strides[at] = size, stride
        elif size != 1:
            raise LayoutError(f"dimension {at - added} of size {size} does not expand to {sizes[at]}")
    return Layout(tuple(new_sizes), tuple(new_strides), layout.offset)


def broadcast_to(layout: Layout, sizes: Sequence[int]) -> Layout:
    """Repeat dimensions of size 1, as `Tensor.broadcast_to`."""
    return expand(layout, sizes)
