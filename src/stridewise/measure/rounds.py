"""Times several versions of something against each other in rounds. No torch.

Every round takes a sample of each arm, in an order that is drawn anew: what the machine does meanwhile falls on all of
them alike. Ratios are those of samples of one round.
"""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

from msgspec import Struct

from stridewise.measure.statistics import CONFIDENCE, Interval, interval

Sample = Callable[[int], float]
"""Makes so many calls, and gives the nanoseconds that they took in all."""

_MOST_CALLS = 100_000
_GROWTH = 10


class Rounds(Struct, frozen=True):
    """The samples of some arms."""

    samples: tuple[tuple[float, ...], ...]
    """Of each arm: nanoseconds of a call, by round."""

    @property
    def count(self) -> int:
        """How many rounds there were."""
        return len(self.samples[0])

    def median_ns(self, arm: int) -> float:
        """Of a call."""
        return median(self.samples[arm])

    def ratio(self, arm: int, over: int) -> Interval:
        """One arm's time over another's. Raises ValueError if there are too few rounds for an interval."""
        pairs = zip(self.samples[arm], self.samples[over], strict=True)
        found = interval([math.log(one / other) for one, other in pairs], 1 - CONFIDENCE)
        if found is None:
            raise ValueError(f"{self.count} rounds are too few for an interval: six are the least")
        return found


def rounds(arms: Sequence[Sample], count: int, sample_ns: float, coins: Random) -> Rounds:
    """Take `count` samples of each arm, of as many calls as last `sample_ns` nanoseconds, after warming them up."""
    calls = [_calls(arm, sample_ns) for arm in arms]
    samples: list[list[float]] = [[] for _ in arms]
    order = list(range(len(arms)))
    for _ in range(count):
        coins.shuffle(order)
        for arm in order:
            samples[arm].append(max(arms[arm](calls[arm]), 1.0) / calls[arm])
    return Rounds(tuple(map(tuple, samples)))


def _calls(arm: Sample, sample_ns: float) -> int:
    """How many calls fill a sample; finding that out warms the arm up."""
    arm(1)
    calls = 1
    while True:
        wanted = math.ceil(sample_ns * calls / max(arm(calls), 1.0))
        if wanted <= 1.5 * calls or calls == _MOST_CALLS:
            return max(min(wanted, _MOST_CALLS), 1)
        calls = min(wanted, _GROWTH * calls, _MOST_CALLS)
