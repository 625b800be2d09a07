"""Rounds of samples: what is timed how often, in which order, and what ratios come of it."""

from random import Random

import pytest

from stridewise.measure.rounds import rounds


class Arm:
    """Takes a fixed time a call, on a clock of its own."""

    def __init__(self, name: str, ns: float, log: list[str]) -> None:
        self.name, self.ns, self.log = name, ns, log
        self.calls: list[int] = []

    def __call__(self, calls: int) -> float:
        self.calls.append(calls)
        self.log.append(self.name)
        return self.ns * calls


def test_each_arm_fills_a_sample_with_calls_of_its_own():
    log: list[str] = []
    fast, slow = Arm("fast", 100.0, log), Arm("slow", 4e6, log)
    found = rounds([fast, slow], 8, 1e6, Random(0))
    assert fast.calls[-8:] == [10_000] * 8
    assert slow.calls[-8:] == [1] * 8
    assert found.count == 8
    assert found.median_ns(0) == pytest.approx(100.0)
    assert found.median_ns(1) == pytest.approx(4e6)


def test_every_round_samples_every_arm_once_in_an_order_that_changes():
    log: list[str] = []
    arms = [Arm(name, 1e6, log) for name in "abc"]
    rounds(arms, 20, 1e6, Random(1))
    orders = ["".join(log[at : at + 3]) for at in range(len(log) - 60, len(log), 3)]
    assert all(sorted(order) == list("abc") for order in orders)
    assert len(set(orders)) > 3


def test_ratios_are_of_the_same_round():
    """A machine whose pace changes from round to round changes times, and no ratio."""
    log: list[str] = []

    def paced(arm: Arm):
        return lambda calls: arm(calls) * (1 + len(arm.calls) % 5)

    found = rounds([paced(Arm("one", 1e6, log)), paced(Arm("two", 2e6, log))], 12, 1e6, Random(2))
    ratio = found.ratio(1, 0)
    assert len(set(found.samples[0])) == 5
    assert (ratio.low, ratio.ratio, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_too_few_rounds_have_no_interval():
    log: list[str] = []
    found = rounds([Arm("a", 1e6, log), Arm("b", 1e6, log)], 5, 1e6, Random(0))
    with pytest.raises(ValueError, match="too few"):
        found.ratio(1, 0)


def test_an_arm_that_takes_no_time_ends():
    log: list[str] = []
    found = rounds([Arm("nothing", 0.0, log)], 6, 1e6, Random(0))
    assert found.median_ns(0) > 0
