"""Overlaps, holes and extents, against counting every address."""

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.layout import (
    Layout,
    LayoutError,
    is_gapped,
    is_non_overlapping_and_dense,
    is_overlapping,
    numel,
    span,
    storage_needed,
    stored,
)
from stridewise.layout import overlap as overlap_module

from .chains import layout_of, views


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Make strides that no view operation gives, where simple criteria fail."""
    count = draw(st.integers(1, 5))
    return Layout(
        draw(st.tuples(*[st.integers(1, 5)] * count)),
        draw(st.tuples(*[st.integers(1, 60) | st.sampled_from((6, 10, 15, 30, 35))] * count)),
    )


@settings(max_examples=600)
@given(layouts())
def test_against_counting(layout):
    addresses = Counter(
        sum(position * stride for position, stride in zip(index, layout.strides, strict=True))
        for index in product(*map(range, layout.sizes))
    )
    assert is_overlapping(layout) == (max(addresses.values()) > 1)
    assert stored(layout) == len(addresses)
    assert span(layout) == max(addresses) + 1
    assert is_gapped(layout) == (len(addresses) < span(layout))


@pytest.mark.parametrize(
    ("sizes", "strides", "expected"),
    [
        ((2, 3), (3, 2), False),  # 0 2 4 3 5 7: strides interleave, yet nothing meets
        ((3, 3), (3, 2), False),
        ((3, 4), (3, 2), True),  # 2 × 3 = 3 × 2
        ((1000, 999), (1000, 1001), False),  # they first meet 1000 × 1001 further on
        ((1002, 1001), (1000, 1001), True),
        ((1001, 1001), (1000, 1001), False),
        ((2, 2, 2, 2), (3, 5, 6, 7), False),
        ((2, 2, 2, 2), (3, 5, 8, 16), True),
        ((4 * 10**5, 5 * 10**5), (5 * 10**5 + 1, 5 * 10**5), False),  # decided without trying half a million
        ((3000, 10, 3000), (3001, 7 * 10**6, 3000), True),  # 7,000,000 = 1000 × 3001 + 1333 × 3000
        ((3000, 10, 3000), (3001, 19 * 10**6, 3000), False),
        ((10**6, 10**6), (10**6, 1), False),
        ((10**6, 10**6), (10**6 - 1, 1), True),
    ],
)
def test_overlap(sizes, strides, expected):
    assert is_overlapping(Layout(sizes, strides)) == expected


def test_a_search_that_gives_up_counts_as_overlap(monkeypatch):
    undecided = Layout((2, 2, 2, 2), (3, 5, 6, 7))
    assert not is_overlapping(undecided)
    monkeypatch.setattr(overlap_module, "_MOST_TRIES", 2)
    assert is_overlapping(undecided)


@settings(max_examples=200)
@given(views())
def test_torch_agrees_where_it_is_sure(tensor):
    # A debugging hook of torch: it says "too hard" for most, and "no" of whatever is dense.
    no, yes, too_hard = 0, 1, 2
    said = torch._debug_has_internal_overlap(tensor)
    assert said == too_hard or tensor.numel() == 0 or is_overlapping(layout_of(tensor)) == (said == yes)
    assert said in (no, yes, too_hard)


def test_large_overlaps_are_counted_up_to_a_bound():
    small = Layout((1000, 1000), (6, 10))
    assert stored(small) == len({6 * i + 10 * j for i in range(1000) for j in range(1000)})
    large = Layout((3, 3, 3), (6, 10 * 2**24, 2 * 6))
    assert stored(large) == min(numel(large), span(large))


def test_extent():
    layout = Layout((2, 3), (10, 2), 7)
    assert (numel(layout), span(layout), storage_needed(layout)) == (6, 15, 22)
    empty = Layout((2, 0), (10, 2), 7)
    assert (numel(empty), span(empty), storage_needed(empty), stored(empty)) == (0, 0, 0, 0)
    assert is_non_overlapping_and_dense(empty)


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "message"),
    [
        ((2, 3), (1,), 0, "2 sizes, but 1 strides"),
        ((-2,), (1,), 0, "negative number"),
        ((2,), (-1,), 0, "negative number"),
        ((2,), (1,), -1, "negative number"),
    ],
)
def test_what_is_no_layout(sizes, strides, offset, message):
    with pytest.raises(LayoutError, match=message):
        Layout(sizes, strides, offset)
