"""The layout of a strided tensor, and the names of memory formats."""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec

from stridewise.layout.errors import LayoutError

MemoryFormat = Literal["contiguous", "channels_last", "channels_last_3d"]


class Layout(msgspec.Struct, frozen=True, gc=False):
    """Sizes, strides and storage offset of a strided tensor, all in elements.

    Raises `LayoutError` unless there is one stride a size and nothing is negative: torch has no negative strides.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.strides):
            raise LayoutError(f"{len(self.sizes)} sizes, but {len(self.strides)} strides")
        if self.offset < 0 or (self.sizes and (min(self.sizes) < 0 or min(self.strides) < 0)):
            raise LayoutError(f"negative number in sizes {self.sizes}, strides {self.strides} or offset {self.offset}")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def is_empty(self) -> bool:
        """Whether there is no element at all."""
        return 0 in self.sizes


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The layout that an operation yields, and whether it had to copy the elements to new memory for it."""

    layout: Layout
    copied: bool


def numel(layout: Layout) -> int:
    """Count the indices of a layout, as `Tensor.numel`: elements that are read, not elements that are stored."""
    return prod(layout.sizes)


def steps(layout: Layout) -> list[tuple[int, int]]:
    """List (stride, size) of the dimensions that move through memory: size > 1 and stride > 0, ascending."""
    pairs = zip(layout.strides, layout.sizes, strict=True)
    return sorted((stride, size) for stride, size in pairs if size > 1 and stride)


def wrap_dim(dim: int, ndim: int) -> int:
    """Count a negative dimension from the end (`c10::maybe_wrap_dim`); a tensor without dimensions has dimension 0."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise LayoutError(f"dimension {dim} is out of range for {ndim} dimensions")
    return dim % count
