"""Whether two different indices of a layout address one element."""

from __future__ import annotations

from math import gcd

from stridewise.layout.model import Layout, numel, steps

_MOST_TRIES = 100_000


def is_overlapping(layout: Layout) -> bool:
    """Tell whether two different indices address one element.

    Exact where torch's `at::has_internal_overlap` gives up, up to a bounded search: the question is
    NP-hard in the number of dimensions. A layout for which 100,000 tries find neither an overlap nor a
    proof that there is none counts as overlapping, because it must not be written to. Such a layout has
    three or more strides that neither nest nor divide each other, with thousands of positions each.
    """
    if layout.is_empty:
        return False
    if any(size > 1 and stride == 0 for size, stride in zip(layout.sizes, layout.strides, strict=True)):
        return True
    moving = steps(layout)
    if _is_nested(moving):
        return False
    reach = sum((size - 1) * stride for stride, size in moving)
    common = gcd(*(stride for stride, _ in moving))
    if numel(layout) > reach // common + 1:
        return True
    return _Search(moving).finds_overlap()


def _is_nested(moving: list[tuple[int, int]]) -> bool:
    """Tell whether each stride steps over all that the smaller ones reach; then nothing can overlap."""
    reach = 0
    for stride, size in moving:
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


class _Search:
    """A search for index differences, not all 0, whose steps through memory cancel out.

    Two indices address one element when Σ stride × difference = 0, each |difference| < size. Differences
    are tried from the largest stride down; the rest must be able to reach what is left, and its greatest
    common divisor must divide it, which leaves few values to try.
    """

    def __init__(self, moving: list[tuple[int, int]]) -> None:
        self.moving = moving
        self.reach = [0]
        self.common = [0]
        for stride, size in moving:
            self.reach.append(self.reach[-1] + (size - 1) * stride)
            self.common.append(gcd(self.common[-1], stride))
        self.tries_left = _MOST_TRIES

    def finds_overlap(self) -> bool:
        """Try each dimension as the one with the largest stride that differs; True also when the tries run out."""
        return any(
            self._cancels(level, stride * difference)
            for level, (stride, _) in enumerate(self.moving)
            for difference in self._candidates(level, 0)
            if difference > 0
        )

    def _cancels(self, level: int, total: int) -> bool:
        """Tell whether the dimensions below `level`, whose common divisor divides `total`, can add up to -total."""
        self.tries_left -= 1
        if self.tries_left < 0:
            return True
        if level == 0:
            return total == 0
        stride, _ = self.moving[level - 1]
        return any(
            self._cancels(level - 1, total + stride * difference) for difference in self._candidates(level - 1, total)
        )

    def _candidates(self, level: int, total: int) -> range:
        """List the differences of dimension `level` that leave of `total` what the dimensions below it may cancel.

        What is left has to be within their reach and a multiple of their common divisor.
        """
        stride, size = self.moving[level]
        reach, common = self.reach[level], self.common[level]
        lowest = max(1 - size, -((reach + total) // stride))
        highest = min(size - 1, (reach - total) // stride)
        if level == 0:
            return range(lowest, highest + 1)
        shared = gcd(stride, common)
        modulus = common // shared
        first = -total // shared * pow(stride // shared, -1, modulus)
        return range(lowest + (first - lowest) % modulus, highest + 1, modulus)
