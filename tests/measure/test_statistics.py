"""Intervals of ratios hold what they promise, and stop as soon as they can tell."""

import math
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stridewise.measure.statistics import CONFIDENCE, LOOKS, WIN, Interval, interval, look

log_ratios = st.lists(st.floats(-2, 2), min_size=8, max_size=30)


def normal(seed: int, pairs: int, ratio: float = 1, spread: float = 0.03) -> list[float]:
    return (math.log(ratio) + spread * np.random.default_rng(seed).standard_normal(pairs)).tolist()


@pytest.mark.parametrize("error", [0.05, 0.01, 0.05 / 6])
@pytest.mark.parametrize("pairs", [8, 12, 27, 40])
def test_it_holds_just_what_the_signed_rank_test_does_not_reject(pairs: int, error: float) -> None:
    """scipy's exact test, of values a little within and beyond each bound."""
    logs = normal(pairs, pairs)
    found = interval(logs, error)
    assert found is not None
    for bound, inward in ((found.low, 1), (found.high, -1)):
        inside, outside = math.log(bound) + inward * 1e-9, math.log(bound) - inward * 1e-9
        assert stats.wilcoxon(np.subtract(logs, inside), method="exact").pvalue > error
        assert stats.wilcoxon(np.subtract(logs, outside), method="exact").pvalue <= error


@pytest.mark.parametrize("pairs", [6, 8, 10])
def test_it_misses_no_oftener_than_it_says_over_all_signs_that_coins_can_give(pairs: int) -> None:
    sizes = np.random.default_rng(pairs).lognormal(size=pairs)
    missed = 0
    for signs in product((-1, 1), repeat=pairs):
        found = interval((sizes * signs).tolist(), 0.05)
        assert found is not None
        missed += not found.low <= 1 <= found.high
    assert 0.02 < missed / 2**pairs <= 0.05


@pytest.mark.parametrize(
    ("pairs", "error", "enough"), [(5, 0.05, False), (6, 0.05, True), (7, 0.01, False), (8, 0.01, True)]
)
def test_there_is_none_of_too_few_pairs(pairs: int, error: float, enough: bool) -> None:
    assert (interval(normal(0, pairs), error) is not None) is enough


@given(log_ratios)
def test_the_ratio_lies_in_it(logs: list[float]) -> None:
    found = interval(logs, 0.05)
    assert found is not None
    assert found.low <= found.ratio <= found.high


@given(log_ratios, st.randoms(use_true_random=False))
def test_the_order_of_pairs_is_of_no_account(logs: list[float], random: Random) -> None:
    shuffled = random.sample(logs, len(logs))
    found, other = interval(logs, 0.05), interval(shuffled, 0.05)
    assert found == other


@given(log_ratios)
def test_swapped_arms_give_the_inverse(logs: list[float]) -> None:
    found, other = interval(logs, 0.05), interval([-one for one in logs], 0.05)
    assert found is not None
    assert other is not None
    assert (1 / other.ratio, 1 / other.high, 1 / other.low) == pytest.approx((found.ratio, found.low, found.high))


def test_outliers_in_a_few_pairs_leave_it_finite_and_near() -> None:
    logs = normal(1, 27)
    calm, wild = interval(logs, 0.01), interval([*logs[:-3], 2.3, -2.3, 1.6], 0.01)
    assert calm is not None
    assert wild is not None
    assert (wild.low, wild.high) == pytest.approx((calm.low, calm.high), abs=0.02)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.90, 0.989, "won"),
        (0.90, 0.99, None),
        (1.02, 1.10, "lost"),
        (1.01, 1.10, None),
        (0.991, 1.009, "no difference"),
        (0.991, 1.02, None),
        (0.95, 1.05, None),
    ],
)
def test_what_is_clear(low: float, high: float, verdict: str | None) -> None:
    assert Interval(1, low, high).verdict == verdict


def test_looks_are_taken_only_when_due() -> None:
    assert [pairs for pairs in range(1, LOOKS[-1] + 10) if look(normal(0, pairs)) is not None] == list(LOOKS)


def test_the_errors_of_all_looks_that_a_trial_can_take_add_up() -> None:
    """A trial that is cut short looks once more with what is left: wider than its share alone, within the whole."""
    share = (1 - CONFIDENCE) / len(LOOKS)
    for taken, pairs in enumerate((7, 10, 17, 30, 50, 90)):
        logs = normal(pairs, pairs)
        assert look(logs, last=True) == interval(logs, share * (len(LOOKS) - taken))
    assert look(normal(0, LOOKS[-1]), last=True) is None
    assert look(normal(0, 5), last=True) is None


def test_the_confidence_holds_over_all_looks() -> None:
    """A trial's intervals, at all looks together, miss the ratio in no more than 5 % of trials."""
    missed = 0
    for seed in range(400):
        logs = normal(seed, LOOKS[-1])
        found = [look(logs[:pairs]) for pairs in LOOKS]
        missed += not all(one is not None and one.low <= 1 <= one.high for one in found)
    assert 0 < missed / 400 < 1 - CONFIDENCE


def test_it_sees_more_than_order_statistics_do() -> None:
    """Why it is not the exact interval of the median: under log-normal noise that wins far fewer trials."""
    signed_rank, order = 0, 0
    for seed in range(200):
        logs = normal(seed, 27, ratio=0.95, spread=0.06)
        found = interval(logs, 0.01)
        signed_rank += found is not None and found.high < WIN
        bounds = stats.quantile_test(logs).confidence_interval(0.99)
        order += math.exp(bounds.high) < WIN
    assert signed_rank > order + 40
