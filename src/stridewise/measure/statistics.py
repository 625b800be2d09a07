"""What paired timings say about the ratio of two programs' times, and when they have said enough. No torch.

A pair is a sample of each arm, and a coin decided which was taken first. Where the arms don't differ, that coin alone
gives the sign of the pair's log ratio, whatever the machine did meanwhile: the signed-rank test is exact then under
drift, bursts, outliers and clocks that jump, with no assumption about noise. Without the coin, noise in step with the
pairs would make winners and losers of equal programs: a fixed A B B A only moves that to noise of another period.

The interval is that of Hodges and Lehmann: all ratios that Wilcoxon's signed-rank test doesn't reject (Hollander, Wolfe
and Chicken, *Nonparametric Statistical Methods*, section 3.3). It sees more than the order statistics of the ratios
(the sign test) unless a third of the pairs holds an outlier. No library that stridewise could use has it; the tests
hold its ranks against scipy's. Blocks of four samples (A B B A) take twice as long over clear effects, and outliers
spoil more of them.

The error is split evenly over the looks (Bonferroni). They overlap, so that fewer trials than may have any look whose
interval misses. A trial that time cuts short spends what its looks have not spent on one last.
`tests/measure/test_timing.py` simulates trials under a dozen kinds of noise.
"""

import math
from collections.abc import Sequence
from functools import cache
from statistics import median

from msgspec import Struct

from stridewise.results.repair import Verdict

CONFIDENCE = 0.95
"""That no interval of a trial, at whichever look, misses the ratio."""
WIN = 0.99
"""The ratio that an interval has to lie below for a win; above its inverse, it is a loss."""
LOOKS = (8, 14, 24, 40, 70, 120)
"""Numbers of pairs after which a trial may end."""
_ERROR = (1 - CONFIDENCE) / len(LOOKS)


class Interval(Struct, frozen=True):
    """A ratio of times, with the change over without it, and the bounds that hold it with `CONFIDENCE`."""

    ratio: float
    """The median of the geometric means of any two pairs' ratios (a pair's own among them)."""
    low: float
    high: float

    @property
    def verdict(self) -> Verdict | None:
        """What is clear already; None if more pairs may tell."""
        if self.high < WIN:
            return "won"
        if self.low > 1 / WIN:
            return "lost"
        return "no difference" if self.low > WIN and self.high < 1 / WIN else None


def look(log_ratios: Sequence[float], *, last: bool = False) -> Interval | None:
    """The interval at one of `LOOKS`, or, as the last of a trial, at any other number of pairs or once more.

    None if there is nothing to see: no look is due, or there are too few pairs.
    """
    pairs = len(log_ratios)
    if last:
        return interval(log_ratios, _ERROR * sum(later > pairs for later in LOOKS))
    return interval(log_ratios, _ERROR) if pairs in LOOKS else None


def interval(log_ratios: Sequence[float], error: float) -> Interval | None:
    """The signed-rank interval that misses with at most this probability; None if there are too few pairs for that."""
    rank = _rank(len(log_ratios), error)
    if rank == 0:
        return None
    means = sorted((one + other) / 2 for at, one in enumerate(log_ratios) for other in log_ratios[at:])
    return Interval(*map(math.exp, (median(means), means[rank - 1], means[-rank])))


@cache
def _rank(pairs: int, error: float) -> int:
    """How many values of the signed-rank statistic, from 0, are together as unlikely as half the error."""
    ways = [1]  # of signs that give each sum of positive ranks
    for rank in range(1, pairs + 1):
        ways = [
            (ways[total] if total < len(ways) else 0) + (ways[total - rank] if total >= rank else 0)
            for total in range(len(ways) + rank)
        ]
    most, found, below = error / 2 * 2**pairs, 0, 0
    while below + ways[found] <= most:
        below += ways[found]
        found += 1
    return found
