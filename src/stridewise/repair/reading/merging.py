"""When a permutation and the other sizes laid over its result can change places.

`x.permute(p).reshape(s)` takes dimensions of `x` together and splits them. If what it takes together lies side by side
in `x`, in that order, then reshaping `x` first and permuting the result gives the same tensor.
"""

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from stridewise.layout import Layout, LayoutError, movedim, mT, permute, swapaxes, t, transpose

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Dimensions of the permuted tensor, and those of the reshaped one that hold the same elements."""


class Swapped(Struct, frozen=True):
    """How to reshape first: the new sizes in this order, and then this permutation."""

    order: tuple[int, ...]
    """Positions in the sizes that the reshape was given."""
    permutation: tuple[int, ...]
    groups: tuple[Group, ...]


def group(
    sizes: Sequence[int], shape: Sequence[int], is_same: Callable[[int, int], bool] = lambda own, new: False
) -> list[Group] | None:
    """The smallest groups of dimensions that a reshape from `sizes` to `shape` takes together and splits.

    `is_same` says of a dimension of each that they are equal whatever the sizes are. None where a size of 1 leaves it
    open which belongs to which.
    """
    groups: list[Group] = []
    own, new = 0, 0
    while own < len(sizes) and new < len(shape):
        if is_same(own, new):
            groups.append(((own,), (new,)))
            own, new = own + 1, new + 1
            continue
        from_, to = [own], [new]
        while (before := prod(sizes[at] for at in from_)) != (after := prod(shape[at] for at in to)):
            if before < after:
                from_.append(from_[-1] + 1)
            else:
                to.append(to[-1] + 1)
            if from_[-1] >= len(sizes) or to[-1] >= len(shape):
                return None
        if any(sizes[at] <= 1 for at in from_) or any(shape[at] <= 1 for at in to):
            return None
        groups.append((tuple(from_), tuple(to)))
        own, new = from_[-1] + 1, to[-1] + 1
    return groups if own == len(sizes) and new == len(shape) else None


def swap(permutation: Sequence[int], groups: Sequence[Group]) -> Swapped | None:
    """How to reshape before a permutation instead of behind it; None where that takes together what lies apart."""
    for own, _ in groups:
        first = permutation[own[0]]
        if any(permutation[at] != first + step for step, at in enumerate(own)):
            return None
    in_memory = sorted(groups, key=lambda each: permutation[each[0][0]])
    order = tuple(new for _, together in in_memory for new in together)
    return Swapped(order, tuple(order.index(new) for new in range(len(order))), tuple(groups))


def permutation_of(name: str, dims: Sequence[int | tuple[int, ...]], ndim: int) -> tuple[int, ...] | None:
    """The permutation that a call of a view such as `transpose` makes; None if it is none, or has other arguments."""
    given = Layout((2,) * ndim, tuple(range(ndim)))
    try:
        if name == "permute":
            return permute(given, _flat(dims)).strides
        if name == "T":
            return tuple(reversed(range(ndim)))
        if name in ("t", "mT"):
            return (t if name == "t" else mT)(given).strides if not dims else None
        first, second = dims
        if name in ("movedim", "moveaxis"):
            return movedim(given, first, second).strides
        if name in ("transpose", "swapaxes", "swapdims") and isinstance(first, int) and isinstance(second, int):
            return (transpose if name == "transpose" else swapaxes)(given, first, second).strides
    except (LayoutError, ValueError):
        pass
    return None


def _flat(dims: Sequence[int | tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(each for dim in dims for each in (dim if isinstance(dim, tuple) else (dim,)))
