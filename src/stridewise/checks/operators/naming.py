"""How a layout that is a part of another is written: `x.t()[:, ::2]`. No torch."""

from __future__ import annotations

from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement
from stridewise.layout import MemoryFormat, format_order

_FORMATS: tuple[MemoryFormat, ...] = ("channels_last", "channels_last_3d")


def named(arrangement: Arrangement, ndim: int) -> Arrangement:
    """The same arrangement of a tensor with so many dimensions, named after what it does."""
    permuted, index = permutation(arrangement.order), indexing(arrangement, ndim)
    parts = []
    name = f"x{permuted}{index}"
    if arrangement.order is not None and not index:
        name = next((f"x in {f}" for f in _FORMATS if arrangement.order == format_order(f, ndim)), name)
    if arrangement.expanded:
        which = "every dimension" if len(arrangement.expanded) == ndim > 1 else _dimensions(arrangement.expanded, ndim)
        parts.append(f"expanded over {which}")
    if arrangement.windows is not None:
        parts.append(f"in overlapping windows over dimension {arrangement.windows}")
    if arrangement.odd_ones:
        parts.append("with odd strides where its size is 1")
    if arrangement.offset:
        parts.append(f"{arrangement.offset} element{'s' if arrangement.offset > 1 else ''} into its storage")
    return replace(arrangement, name=" ".join([name, *parts]))


def permutation(order: tuple[int, ...] | None) -> str:
    """The call that gives a tensor with this memory order from a contiguous one; empty for none."""
    if order is None:
        return ""
    dims = tuple(order.index(dim) for dim in range(len(order)))
    moved = [dim for dim, to in enumerate(dims) if dim != to]
    if len(moved) == 2:
        return ".t()" if len(order) == 2 else f".transpose({moved[0]}, {moved[1]})"
    return f".permute{dims}" if moved else ""


def indexing(arrangement: Arrangement, ndim: int) -> str:
    """The slices that leave a tensor of a larger one; empty for none. Of each dimension `before:-after:step`."""
    before, after = arrangement.before or (0,) * ndim, arrangement.after or (0,) * ndim
    steps = arrangement.steps or (1,) * ndim
    slices = []
    for first, behind, step in zip(before, after, steps, strict=True):
        # A step takes what lies behind the last element up to the next one along.
        behind = behind if behind >= step else 0
        text = f"{first or ''}:{-behind if behind else ''}"
        slices.append(f"{text}:{step}" if step > 1 else text)
    while slices and slices[-1] == ":":
        slices.pop()
    return f"[{', '.join(slices)}]" if slices else ""


def _dimensions(dims: tuple[int, ...], ndim: int) -> str:
    found = [str(dim % ndim) for dim in dims]
    return f"dimension{'s' if len(found) > 1 else ''} {', '.join(found)}"
