"""Whether two layouts over one storage address a common element."""

from __future__ import annotations

from stridewise.layout.model import Layout, steps

_MOST_TRIES = 100_000


def share_elements(one: Layout, other: Layout) -> bool:
    """Tell whether some element belongs to both, as layouts of equal item size in one storage.

    Columns of one matrix, `base[:, :2]` and `base[:, 2:]`, lie between each other and share none. Exact, up to a
    bounded search: pairs for which 100,000 tries decide nothing count as sharing.
    """
    if one.is_empty or other.is_empty:
        return False
    # An index of one and an index of the other meet where their distances from the first element of the one and
    # from the *last* of the other add up to the distance between these two.
    distance = other.offset - one.offset + sum((size - 1) * stride for stride, size in steps(other))
    counts: dict[int, int] = {}
    for stride, size in (*steps(one), *steps(other)):
        counts[stride] = counts.get(stride, 0) + size - 1
    return _Sum(sorted(counts.items())).can_be(distance)


class _Sum:
    """A search for a sum of strides, each taken up to its count of times, from the largest down."""

    def __init__(self, counts: list[tuple[int, int]]) -> None:
        self.counts = counts
        self.reach = [0]
        for stride, count in counts:
            self.reach.append(self.reach[-1] + stride * count)
        self.tries_left = _MOST_TRIES

    def can_be(self, total: int) -> bool:
        """Tell whether the strides add up to a total; True also when the tries run out."""
        return self._can_be(len(self.counts), total)

    def _can_be(self, level: int, total: int) -> bool:
        if not 0 <= total <= self.reach[level]:
            return False
        if level == 0:
            return True
        self.tries_left -= 1
        if self.tries_left < 0:
            return True
        stride, count = self.counts[level - 1]
        fewest = max(0, -(-(total - self.reach[level - 1]) // stride))
        most = min(count, total // stride)
        return any(self._can_be(level - 1, total - stride * times) for times in range(most, fewest - 1, -1))
