"""How two layouts of equal sizes differ. No torch."""

from __future__ import annotations

from typing import Literal

from stridewise.layout import Layout


def apart(one: Layout, other: Layout) -> Literal["no", "size 1", "yes"]:
    """Whether strides differ: not at all, only where a size is 1 (no element lies elsewhere), or really."""
    pairs = [*zip(one.sizes, one.strides, other.strides, strict=True)] if one.sizes == other.sizes else []
    if one.sizes != other.sizes or any(size > 1 and own != its for size, own, its in pairs if not one.is_empty):
        return "yes"
    return "size 1" if any(own != its for _, own, its in pairs) else "no"
