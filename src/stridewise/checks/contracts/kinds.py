"""What a contract can ask of a tensor's layout, and why a layout does not give it. No torch is imported here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from msgspec import Struct

from stridewise import layout
from stridewise.errors import UsageError
from stridewise.layout import Layout, MemoryFormat

SAME_AS = "same_as"
FORMATS: tuple[MemoryFormat, ...] = get_args(MemoryFormat)
KINDS = (*FORMATS, "dense", "last_stride_1", "non_overlapping")
_RANKS = {"channels_last": 4, "channels_last_3d": 5}

Asks = str | Callable[[Any], bool]
"""A kind by its name, `same_as("other")`, or a function of the tensor."""


class Kind(Struct, frozen=True):
    """One demand on a tensor."""

    name: str
    """One of `KINDS`, `same_as`, or the name of `predicate`."""
    other: str | None = None
    """The argument whose layout it must have."""
    predicate: Callable[[Any], bool] | None = None

    @property
    def shown(self) -> str:
        """As it completes "needs `x` to be"."""
        if self.predicate is not None:
            return f"such that `{self.name}` holds"
        return _SHOWN.get(self.name, self.name) if self.other is None else f"laid out as `{self.other}`"


_SHOWN = {
    "dense": "dense (no holes, no element twice)",
    "last_stride_1": "dense in its last dimension (stride 1)",
    "non_overlapping": "free of overlap (no element twice)",
}


def same_as(other: str) -> str:
    """The kind of an argument that must have the sizes and strides of another one, named by `other`."""
    return f"{SAME_AS}={other}"


def parse(argument: str, asks: object) -> Kind:
    """The kind that somebody wrote for an argument. Raises UsageError."""
    if isinstance(asks, str):
        if asks in KINDS:
            return Kind(asks)
        before, equals, other = (part.strip() for part in asks.partition("="))
        if before == SAME_AS and equals and other:
            return Kind(SAME_AS, other=other)
    elif callable(asks) and not isinstance(asks, type):
        return Kind(getattr(asks, "__name__", type(asks).__name__), predicate=asks)
    known = ", ".join([*KINDS, 'same_as("other")'])
    raise UsageError(f"expect_layout: {argument}={asks!r} is no kind of layout; known are {known}, or a function.")


def meets(kind: str, given: Layout, other: Layout | None = None) -> bool:
    """Whether a layout is of a kind.

    Dimensions of size 1 do not count, as for `Tensor.is_contiguous`; but for `last_stride_1` they do: a kernel reads
    `stride(-1)` whatever the size is.
    """
    if kind in FORMATS:
        return layout.is_contiguous(given, kind)
    if kind == "dense":
        return layout.is_non_overlapping_and_dense(given)
    if kind == "last_stride_1":
        return given.ndim == 0 or given.strides[-1] == 1
    if kind == "non_overlapping":
        return not layout.is_overlapping(given)
    if kind == SAME_AS and other is not None:
        return given.sizes == other.sizes and first_difference(given, other) is None
    return False


def first_difference(given: Layout, other: Layout) -> int | None:
    """The first dimension with more than one position in which the strides of two layouts of equal sizes differ."""
    if given.is_empty:
        return None
    columns = enumerate(zip(given.sizes, given.strides, other.strides, strict=True))
    return next((dim for dim, (size, own, due) in columns if size > 1 and own != due), None)


def fault(kind: Kind, given: Layout, other: Layout | None = None) -> str:
    """Why a layout is not of a kind: a sentence with the dimension at fault and the stride that it would need."""
    if kind.predicate is not None:
        return f"`{kind.name}` returned False."
    if kind.name in _RANKS:
        return _against_format(kind.name, given)
    if kind.name == "last_stride_1":
        at = given.ndim - 1
        text = f"dimension {at} has stride {given.strides[-1]}, and has to have 1"
        return _sentence(text if given.sizes[-1] != 1 else f"{text}, though its size is 1: kernels read that stride")
    if kind.name == SAME_AS and other is not None:
        if given.sizes != other.sizes:
            return f"`{kind.other}` has sizes {other.sizes}."
        dim = first_difference(given, other) or 0
        stride = other.strides[dim]
        return f"Dimension {dim} has stride {given.strides[dim]}, that of `{kind.other}` has {stride}."
    return _sentence(layout.reason(given))


def _against_format(memory_format: str, given: Layout) -> str:
    rank = _RANKS[memory_format]
    if given.ndim != rank:
        return f"It has {given.ndim} dimensions, and {memory_format} is for {rank}."
    needed = layout.format_strides(given.sizes, memory_format)  # type: ignore[arg-type]
    columns = enumerate(zip(given.sizes, given.strides, needed, strict=True))
    dim, own, due = next((dim, own, due) for dim, (size, own, due) in columns if size != 1 and own != due)
    return f"Dimension {dim} has stride {own}, {memory_format} needs {due}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".") + "."


def can_be_made(kind: Kind, given: Layout, other: Layout | None = None) -> bool:
    """Whether a copy of a tensor can be of a kind."""
    if kind.name in _RANKS:
        return given.ndim == _RANKS[kind.name]
    if kind.name == SAME_AS:
        return other is not None and given.sizes == other.sizes and layout.is_non_overlapping_and_dense(other)
    return kind.predicate is None


def cure(kind: Kind, expression: str, given: Layout | None, other: Layout | None = None) -> str | None:
    """What to write for a tensor to be of a kind; None if no expression can be named."""
    if given is not None and not can_be_made(kind, given, other):
        return None
    if kind.name == SAME_AS:
        return f"torch.empty_like({kind.other}).copy_({expression})"
    if kind.name in _RANKS:
        return f"{expression}.contiguous(memory_format=torch.{kind.name})"
    if given is not None and layout.is_contiguous(given):  # row 47 of the reports: contiguous() would change nothing
        return f"{expression}.clone(memory_format=torch.contiguous_format)"
    return f"{expression}.contiguous()"


def order_of(kind: str, ndim: int, other: Layout | None = None) -> tuple[int, ...]:
    """The order of dimensions, outermost first, in which a dense copy is of a kind."""
    if kind == SAME_AS and other is not None:
        # Size-1 dimensions too: what has the other's strides in them is taken for the same format by kernels.
        return tuple(sorted(range(ndim), key=lambda dim: (-other.strides[dim], -other.sizes[dim], dim)))
    name: MemoryFormat = kind if kind in FORMATS else "contiguous"
    return layout.format_order(name, ndim) or tuple(range(ndim))


# -- the same on plain numbers, in loops that can be traced and take a microsecond ------------------------------------


def are_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each element between the first and the last has exactly one index."""
    left = [dim for dim in range(len(sizes)) if sizes[dim] != 1]
    for dim in left:
        if sizes[dim] == 0:
            return True
    due = 1
    while left:
        found = -1
        for dim in left:
            if strides[dim] == due:
                found = dim
        if found < 0:
            return False
        due = due * sizes[found]
        left.remove(found)
    return True


def are_nested(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each stride steps over all that the smaller ones reach: then no element has two indices."""
    left = [dim for dim in range(len(sizes)) if sizes[dim] != 1]
    for dim in left:
        if sizes[dim] == 0:
            return True
    reach = 0
    while left:
        found = left[0]
        for dim in left:
            if strides[dim] < strides[found]:
                found = dim
        if strides[found] <= reach:
            return False
        reach = reach + (sizes[found] - 1) * strides[found]
        left.remove(found)
    return True
