"""Numbers have a unit, two or three significant digits, and never stand for more than was measured."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.findings import Cost
from stridewise.results import numbers

POWERS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (4.14, "4.1"),
        (9.96, "10"),
        (26.0, "26"),
        (384.4, "384"),
        (1234567, "1,234,567"),
        (0.999, "1"),
        (0.5, "0.5"),
        (1 / 3, "0.33"),
        (0.041, "0.041"),
        (0.00001, "0.00001"),
    ],
)
def test_figures(value, text):
    assert numbers.figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.7, "1 kB"), (999_499, "999 kB"), (999_600, "1 MB"), (38_400_000, "38 MB")],
)
def test_byte_counts(value, text):
    assert numbers.byte_count(value) == text


@given(st.floats(min_value=1, max_value=9e17))
def test_byte_counts_are_true_to_five_percent(value):
    number, unit = numbers.byte_count(value).split()
    assert float(number.replace(",", "")) * POWERS[unit] == pytest.approx(value, rel=0.051)
    assert len(re.sub(r"[.,]|^0\.0*", "", number)) <= 3


def test_durations_and_shares():
    assert [numbers.duration(value) for value in (0.4, 40, 4100, 1.2e6, 38e9, 7.2e12)] == [
        "0.4 ns",
        "40 ns",
        "4.1 µs",
        "1.2 ms",
        "38 s",
        "7,200 s",
    ]
    assert [numbers.share(value) for value in (0, 1e-7, 0.0003, 0.0414, 0.128, 1)] == [
        "0 %",
        "< 0.01 %",
        "0.03 %",
        "4.1 %",
        "13 %",
        "100 %",
    ]


def test_counts():
    assert numbers.count(1, "copy", "copies") == "1 copy"
    assert numbers.count(0.33, "copy", "copies") == "0.33 copies"
    assert numbers.count(2, "place") == "2 places"


def test_a_cost_leaves_out_what_was_not_measured():
    assert numbers.cost(Cost(24, 31e6, 1.2e6, 0.03)) == "24 copies, 31 MB, 1.2 ms"
    assert numbers.cost(Cost(24, 31e6)) == "24 copies, 31 MB"
    assert numbers.cost(Cost(duration_ns=5e3)) == "5 µs"
    assert numbers.cost(Cost()) == "no copy"
