"""What a copy does to a layout, and how many bytes it moves."""

import pytest
import torch
from hypothesis import given, settings

from stridewise.layout import (
    Layout,
    bytes_moved,
    change,
    contiguous_strides,
    is_expanded,
    is_gapped,
    is_relayout,
    memory_order,
)

from .chains import layout_of, views

CHANGES = {
    "transposed to contiguous": ((4, 3), (1, 4), (3, 1), "reorder"),
    "contiguous to channels_last": ((2, 3, 4, 5), (60, 20, 5, 1), (60, 1, 15, 3), "reorder"),
    "transposed and sliced": ((4, 3), (1, 8), (3, 1), "reorder"),
    "bias over rows": ((8, 3), (0, 1), (3, 1), "materialize"),
    "expanded into a gapped destination": ((8, 3), (0, 1), (6, 1), "materialize"),
    "expanded column, other order": ((2, 8, 3), (1, 0, 2), (24, 3, 1), "materialize"),
    "every other column": ((4, 3), (6, 2), (3, 1), "pack"),
    "q of a fused qkv": ((2, 5, 8), (120, 24, 1), (40, 8, 1), "pack"),
    "gapped to otherwise gapped": ((4, 3), (6, 2), (12, 1), "pack"),
    "sliding windows": ((8, 3), (1, 1), (3, 1), "pack"),
    "into a slice": ((4, 3), (3, 1), (8, 1), "unpack"),
    "equal": ((4, 3), (3, 1), (3, 1), None),
    "equal but for size 1": ((4, 1, 3), (3, 7, 1), (3, 3, 1), None),
    "expanded size 1": ((1, 3), (0, 1), (3, 1), None),
    "no elements": ((0, 3), (1, 9), (3, 1), None),
    "no dimensions": ((), (), (), None),
}


@pytest.mark.parametrize(("sizes", "source", "destination", "expected"), CHANGES.values(), ids=CHANGES)
def test_change(sizes, source, destination, expected):
    assert change(sizes, source, destination) == expected
    assert is_relayout(sizes, source, destination) == (expected is not None)


@settings(max_examples=200)
@given(views())
def test_change_to_contiguous(tensor):
    layout = layout_of(tensor)
    found = change(layout.sizes, layout.strides, contiguous_strides(layout.sizes))
    assert (found is None) == tensor.is_contiguous()
    assert (found == "materialize") == is_expanded(layout)
    if found == "reorder":
        assert list(memory_order(layout)) != sorted(memory_order(layout))
    if found == "pack":
        assert list(memory_order(layout)) == sorted(memory_order(layout))
    assert found != "unpack"


def test_memory_order_ties_keep_dimension_order():
    assert memory_order(Layout((2, 1, 3, 4, 5), (5, 99, 5, 0, 20))) == (4, 0, 2)


def test_bytes_moved_counts_both_sides():
    assert bytes_moved((4, 3), (1, 4), 4, (3, 1), 4) == 12 * 4 + 12 * 4


def test_bytes_moved_of_a_cast():
    assert bytes_moved((4, 3), (1, 4), 4, (3, 1), 2) == 12 * 4 + 12 * 2


def test_bytes_moved_reads_stride_0_once():
    assert bytes_moved((8, 3), (0, 1), 4, (3, 1), 4) == 3 * 4 + 24 * 4
    assert bytes_moved((8, 3), (0, 0), 4, (3, 1), 4) == 1 * 4 + 24 * 4


def test_bytes_moved_reads_overlapping_windows_once():
    assert bytes_moved((8, 3), (1, 1), 4, (3, 1), 4) == 10 * 4 + 24 * 4
    assert bytes_moved((3, 4), (4, 2), 4, (4, 1), 4) == 8 * 4 + 12 * 4  # with gaps as well
    assert bytes_moved((4, 8, 3), (0, 2, 1), 4, (24, 3, 1), 4) == 17 * 4 + 96 * 4


@settings(max_examples=200)
@given(views())
def test_bytes_moved_reads_the_elements_that_there_are(tensor):
    layout = layout_of(tensor)
    addresses = torch.arange(tensor.untyped_storage().nbytes()).as_strided(tensor.shape, tensor.stride())
    moved = bytes_moved(layout.sizes, layout.strides, 1, contiguous_strides(layout.sizes), 1)
    assert moved == addresses.unique().numel() + tensor.numel()


def test_bytes_moved_of_nothing():
    assert bytes_moved((0, 3), (0, 1), 4, (3, 1), 4) == 0
    assert bytes_moved((), (), 4, (), 8) == 12


def test_gaps_do_not_count_as_moved():
    assert is_gapped(Layout((4, 3), (8, 2)))
    assert bytes_moved((4, 3), (8, 2), 4, (3, 1), 4) == 12 * 4 + 12 * 4
