"""Which classes hold of a layout, and which one names it."""

import pytest
from hypothesis import given, settings

from stridewise.layout import Layout, classes, is_expanded, is_gapped, is_overlapping, name

from .chains import layout_of, views

CLASSES = {
    "row-major": ((2, 3, 4), (12, 4, 1), ("contiguous",)),
    "size 1 does not count": ((2, 1, 4), (4, 99, 1), ("contiguous",)),
    "empty": ((2, 0, 4), (1, 2, 3), ("contiguous",)),
    "no dimensions": ((), (), ("contiguous",)),
    "images": ((2, 3, 4, 5), (60, 1, 15, 3), ("channels_last",)),
    "clips": ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), ("channels_last_3d",)),
    "images of one channel": ((2, 1, 4, 5), (20, 20, 5, 1), ("contiguous", "channels_last")),
    "transposed": ((4, 3), (1, 4), ("permuted",)),
    "expanded rows": ((8, 3), (0, 1), ("expanded", "overlapping")),
    "expanded rows of every other column": ((8, 3), (0, 2), ("expanded", "overlapping", "gapped")),
    "expanded size 1": ((1, 3), (0, 1), ("contiguous",)),
    "sliding windows": ((8, 3), (1, 1), ("overlapping",)),
    "sliding windows of every other element": ((8, 3), (2, 2), ("overlapping", "gapped")),
    "every other column": ((8, 4), (8, 2), ("gapped",)),
    "interleaved": ((2, 3), (3, 2), ("gapped",)),
}


@pytest.mark.parametrize(("sizes", "strides", "expected"), CLASSES.values(), ids=CLASSES)
def test_classes(sizes, strides, expected):
    layout = Layout(sizes, strides)
    assert classes(layout) == expected
    assert name(layout) == expected[0]


@settings(max_examples=200)
@given(views())
def test_classes_are_what_the_predicates_say(tensor):
    layout = layout_of(tensor)
    found = classes(layout)
    assert found
    assert ("expanded" in found) == is_expanded(layout)
    assert ("overlapping" in found) == is_overlapping(layout)
    assert ("gapped" in found) == is_gapped(layout)
