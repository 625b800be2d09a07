"""Layouts that experiments give to values. No torch of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def swapped(values: Tensor, one: int, other: int) -> Tensor:
    """The same values, in memory as if two dimensions were swapped."""
    return values.transpose(one, other).contiguous().transpose(one, other)


def every_second(values: Tensor) -> Tensor:
    """The same values, in every second column of a tensor twice as wide."""
    *others, columns = values.shape
    return values.new_zeros(*others, 2 * columns)[..., ::2].copy_(values)
