"""Times two versions of a step against each other, in turn, until it is clear which is faster. No torch."""

import math
from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from typing import Protocol

from msgspec import Struct

from stridewise.measure.statistics import LOOKS, Interval, look
from stridewise.results.repair import Verdict

SAMPLE_NS = 20_000_000
"""How long a sample lasts at least: steps that take less are timed several at a time."""
SAMPLE_WALL_S = 0.2
"""What a sample with all that goes untimed around its steps may take before it is given fewer of them."""
WARM_UP = 2
"""Samples of each arm, at least, that don't count."""
_MOST_ROUNDS = 10
_MOST_STEPS = 10_000

Progress = Callable[[int, Interval | None], None]
"""Is told, after every pair, how many there are, and the latest interval."""


class Arm(Protocol):
    """One version of the program."""

    def enter(self) -> None:
        """Make it the current version. Called untimed, where the sample before was the other's."""

    def run(self) -> int:
        """Run one step and return its nanoseconds, without what was done to prepare it."""


class Timed(Struct, frozen=True):
    """How the times of two arms compare."""

    interval: Interval | None
    """Of the time after over the time before; None if time was up before there were enough pairs."""
    verdict: Verdict | None
    """None if there is no interval."""
    pairs: int
    steps: int
    """In each sample."""
    before_ns: float | None
    """Median time of a step, over samples; None if there is no pair."""
    after_ns: float | None


class _TimeIsUp(Exception):
    """The deadline has come."""


def compare(
    before: Arm,
    after: Arm,
    *,
    clock: Callable[[], float],
    deadline: float,
    progress: Progress | None = None,
    seed: int = 0,
    sample_ns: int = SAMPLE_NS,
) -> Timed:
    """Time two arms in pairs of samples, the order of each pair as a coin says, until it is clear how they compare.

    `clock` counts seconds. No sample begins after `deadline`, and no pair for which the shortest so far would be too
    long; a pair that is cut short doesn't count. `seed` is of the coins that say which arm goes first: no two trials
    should share them. What an arm raises is let through.
    """
    sampler = _Sampler((before, after), clock, deadline, sample_ns)
    samples: list[tuple[float, float]] = []
    logs: list[float] = []
    found: Interval | None = None
    try:
        sampler.warm_up()
        for pair in sampler.pairs(Random(seed)):
            samples.append(pair)
            logs.append(math.log(pair[1] / pair[0]))
            found = look(logs) or found
            if progress is not None:
                progress(len(logs), found)
            if len(logs) == LOOKS[-1] or (found is not None and found.verdict is not None):
                break
    except _TimeIsUp:
        found = look(logs, last=True) or found
    return Timed(
        interval=found,
        verdict=None if found is None else found.verdict or "no difference",
        pairs=len(logs),
        steps=sampler.steps,
        before_ns=median(before for before, _ in samples) if samples else None,
        after_ns=median(after for _, after in samples) if samples else None,
    )


class _Sampler:
    """Takes samples, of as many steps as it found to be right while warming up, as long as there is time."""

    def __init__(self, arms: tuple[Arm, Arm], clock: Callable[[], float], deadline: float, sample_ns: int) -> None:
        self.arms = arms
        self.clock = clock
        self.deadline = deadline
        self.sample_ns = sample_ns
        self.steps = 1
        self._current: Arm | None = None

    def warm_up(self) -> None:
        """Run both arms until they are warm and a sample is long enough, the same number of steps for both."""
        for done in range(1, _MOST_ROUNDS + 1):
            start = self.clock()
            shortest = min(self._sample(arm) for arm in self.arms)
            wall = (self.clock() - start) / (2 * self.steps)
            wanted = min(math.ceil(self.sample_ns / shortest), 10 * self.steps, _MOST_STEPS)
            if wall > 0:
                wanted = min(wanted, max(1, int(SAMPLE_WALL_S / wall)))
            if done >= WARM_UP and wanted <= 1.25 * self.steps:
                return
            self.steps = max(wanted, self.steps)

    def pairs(self, coins: Random) -> Iterator[tuple[float, float]]:
        """A sample of each arm; the coin says which is taken first."""
        shortest = 0.0
        while True:
            start = self.clock()
            if start + shortest > self.deadline:
                raise _TimeIsUp
            if coins.getrandbits(1):
                after = self._sample(self.arms[1])
                pair = self._sample(self.arms[0]), after
            else:
                pair = self._sample(self.arms[0]), self._sample(self.arms[1])
            took = self.clock() - start
            shortest = min(shortest, took) if shortest else took
            yield pair

    def _sample(self, arm: Arm) -> float:
        """Mean nanoseconds of a step."""
        if self.clock() > self.deadline:
            raise _TimeIsUp
        if arm is not self._current:
            arm.enter()
            self._current = arm
        return max(sum(arm.run() for _ in range(self.steps)), 1) / self.steps
