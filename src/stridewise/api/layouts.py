"""One layout in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from stridewise import layout
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def explain(tensor: Tensor | Sequence[int], strides: Collection[int] | None = None, offset: int = 0) -> str:
    """What layout a tensor has, and why, in a line or two; or, in its place, what sizes and strides would have.

    For a tensor without strides it says what it has instead. Raises UsageError where there is no such layout.
    """
    if isinstance(tensor, (tuple, list)):
        return explain_layout(tensor, strides, offset)
    from stridewise.recorder.tensors import layout_of

    given = cast("Tensor", tensor)
    described = layout_of(given)
    return described if isinstance(described, str) else layout.explain(described, given.element_size())


def explain_layout(sizes: Collection[int], strides: Collection[int] | None = None, offset: int = 0) -> str:
    """The same for sizes, strides and storage offset, in elements; without strides they are the contiguous ones.

    Raises UsageError where there is no such layout.
    """
    try:
        given = layout.contiguous_strides(tuple(sizes)) if strides is None else tuple(strides)
        return layout.explain(layout.Layout(tuple(sizes), given, offset))
    except layout.LayoutError as error:
        raise UsageError(f"There is no such layout: {error}.") from None
