"""Basic indexing: `x[0, ..., None, 1:8:2]`. It is a view, unlike indexing by lists, booleans and tensors."""

from __future__ import annotations

from types import EllipsisType

from stridewise.layout.dimensions import unsqueeze
from stridewise.layout.errors import LayoutError
from stridewise.layout.model import Layout
from stridewise.layout.windows import select, slice_dim

Index = int | slice | EllipsisType | None


def index(layout: Layout, key: Index | tuple[Index, ...]) -> Layout:
    """Index by integers, slices, None and one Ellipsis, as `Tensor.__getitem__` does with them.

    Raises `LayoutError` for what is out of range, and for keys that copy (booleans, lists, tensors).
    """
    keys = key if isinstance(key, tuple) else (key,)
    for each in keys:
        if isinstance(each, bool) or not (each is None or isinstance(each, int | slice | EllipsisType)):
            raise LayoutError(f"{each!r} as an index makes a copy, not a view")
    consumed = sum(isinstance(each, int | slice) for each in keys)
    if consumed > layout.ndim:
        raise LayoutError(f"{consumed} indices are too many for {layout.ndim} dimensions")
    # torch lets a second one pass and then looks for dimensions that are not there.
    if sum(each is Ellipsis for each in keys) > 1:
        raise LayoutError("an index with more than one Ellipsis")
    ndim_before, dim = layout.ndim, 0
    for each in keys:
        if isinstance(each, int):
            layout = select(layout, dim, each)
        elif isinstance(each, slice):
            layout = slice_dim(layout, dim, each.start, each.stop, 1 if each.step is None else each.step)
            dim += 1
        elif each is None:
            layout = unsqueeze(layout, dim)
            dim += 1
        else:
            dim += ndim_before - consumed
    return layout
