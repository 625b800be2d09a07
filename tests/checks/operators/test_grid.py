"""Layouts to run with: what the recipe computes is what torch's own views give."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.checks.operators.case import Arrangement, Operand
from stridewise.checks.operators.grid import CONTIGUOUS, gradient_grid, grid, place, size_variants
from stridewise.layout import Layout, is_overlapping, name, numel

SIZES = st.lists(st.integers(0, 5), min_size=0, max_size=5).map(tuple)


@given(SIZES, st.booleans())
def test_each_lies_inside_of_its_block(sizes, read_only):
    for arrangement in (CONTIGUOUS, *grid(sizes, read_only=read_only)):
        placement = place(arrangement, sizes)
        if not arrangement.odd_ones and numel(placement.layout):
            torch.empty(placement.extent).as_strided(sizes, placement.layout.strides, placement.layout.offset)
        assert placement.layout.sizes == sizes


@given(SIZES)
def test_what_is_written_shares_no_element(sizes):
    assert not any(is_overlapping(place(arrangement, sizes).layout) for arrangement in grid(sizes, read_only=False))


@given(SIZES, st.booleans())
def test_names_and_layouts_are_all_different(sizes, read_only):
    found = grid(sizes, read_only=read_only)
    assert len({arrangement.name for arrangement in found}) == len(found)
    assert CONTIGUOUS.name not in {arrangement.name for arrangement in found}


@pytest.mark.parametrize(
    ("shown", "made"),
    [
        ("x.t()", lambda base: base(4, 3).t()),
        ("x[:, ::2]", lambda base: base(3, 8)[:, ::2]),
        ("x[:, 1:-1]", lambda base: base(3, 6)[:, 1:-1]),
        ("x.chunk(2, 1)[1]", lambda base: base(3, 8).chunk(2, 1)[1]),
        ("x expanded over dimension 0", lambda base: base(1, 4).expand(3, 4)),
        ("x expanded over every dimension", lambda base: base(1, 1).expand(3, 4)),
        ("x.t()[:, 1:-1]", lambda base: base(6, 3).t()[:, 1:-1]),
    ],
)
def test_they_are_what_their_names_say(shown, made):
    tensor = made(torch.empty)
    (arrangement,) = (a for a in grid((3, 4), read_only=True) if a.name == shown)
    layout = place(arrangement, (3, 4)).layout
    assert (layout.sizes, layout.strides) == (tuple(tensor.shape), tensor.stride())
    assert layout.offset == tensor.storage_offset()


@pytest.mark.parametrize(("sizes", "format"), [((2, 3, 4, 5), "channels_last"), ((2, 3, 2, 4, 5), "channels_last_3d")])
def test_images_come_in_channels_last(sizes, format):
    assert format in {name(place(arrangement, sizes).layout) for arrangement in grid(sizes, read_only=True)}


def test_a_matrix_is_permuted_sliced_split_stepped_expanded_and_overlapped():
    names = {name(place(arrangement, (3, 4)).layout) for arrangement in grid((3, 4), read_only=True)}
    assert names == {"contiguous", "permuted", "gapped", "expanded", "overlapping"}


def test_sizes_of_1_get_odd_strides():
    assert any(arrangement.odd_ones for arrangement in grid((3, 1), read_only=True))
    assert not any(arrangement.odd_ones for arrangement in grid((3, 2), read_only=True))


@given(SIZES)
def test_gradients_fit_any_number_of_dimensions(sizes):
    for arrangement in gradient_grid((2, 2)):
        assert place(arrangement, sizes).layout.sizes == sizes


def test_equal_sizes_change_together():
    one = Operand("x", "input", (3, 4), "float32", True, False)
    other = Operand("y", "input", (4, 5), "float32", True, False)
    variants = size_variants((one, other))
    assert {"x": (3, 1), "y": (1, 5)} in variants
    assert {"x": (3, 0), "y": (0, 5)} in variants
    assert {"x": (3, 1)} not in variants
    assert {"x": (1, 4)} in variants


def test_layouts_around_one_that_is_not_contiguous():
    home = Arrangement("x as it was made for", strides=(1, 4))
    found = grid((4, 6), read_only=True, home=home)
    strides = [place(arrangement, (4, 6)).layout.strides for arrangement in found if not arrangement.offset]
    assert strides[0] == (6, 1)
    assert (1, 4) not in strides
    (offset,) = (arrangement for arrangement in found if arrangement.offset)
    assert place(offset, (4, 6)).layout == Layout((4, 6), (1, 4), 1)


def test_odd_strides_of_size_1_keep_the_others():
    home = Arrangement("x as it was made for", strides=(12, 1, 3))
    (odd,) = (arrangement for arrangement in grid((1, 3, 4), read_only=True, home=home) if arrangement.odd_ones)
    assert place(odd, (1, 3, 4)).layout.strides[1:] == (1, 3)
    assert place(odd, (1, 3, 4)).layout.strides[0] > 12
