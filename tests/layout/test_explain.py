"""The words that people read."""

import math

import pytest
import torch
from hypothesis import given, settings

from stridewise.layout import Layout, explain, joined, name, suggested_format

from .chains import layout_of, views

SAID = {
    ((2, 3, 4), (12, 4, 1)): (
        "contiguous: its 24 elements (96 B) lie in memory without holes, in the order of their indices."
    ),
    ((), ()): "contiguous: it has 1 element (4 B) only.",
    ((0, 3), (5, 7)): "contiguous: it has no elements, so any strides will do.",
    ((2, 3, 4, 5), (60, 1, 15, 3)): (
        "channels_last: its 120 elements (480 B) lie in memory without holes, the channels of one pixel side by side, "
        "which suits convolutions; dimension 1 has stride 1, contiguous would need 20. "
        "A view can join dimensions 2 and 3; to join others, reshape copies."
    ),
    ((1, 3, 4, 5), (3, 1, 15, 3)): (
        "channels_last: its 60 elements (240 B) lie in memory without holes, the channels of one pixel side by side, "
        "which suits convolutions; dimension 1 has stride 1, contiguous would need 20. "
        "But convolution, pooling and interpolation look at dimensions of size 1 too and take it for contiguous: "
        "dimension 0 has stride 3, channels_last would need 60. "
        "A view can join dimensions 2 and 3; to join others, reshape copies."
    ),
    ((4, 1, 5, 5), (25, 1, 5, 1)): (
        "contiguous: its 100 elements (400 B) lie in memory without holes, in the order of their indices. "
        "But convolution, pooling and interpolation look at dimensions of size 1 too and take it for channels_last: "
        "dimension 1 has stride 1, contiguous would need 25."
    ),
    ((4, 1, 1, 1), (1, 1, 1, 1)): (
        "contiguous: its 4 elements (16 B) lie in memory without holes, in the order of their indices."
    ),
    ((4, 3), (1, 4)): (
        "permuted: its 12 elements (48 B) lie in memory without holes, but in another order than their indices, "
        "dimension 1 outermost, then 0; dimension 0 has stride 1, contiguous would need 3. "
        "No view can join its dimensions; reshape copies."
    ),
    ((8, 3), (0, 1)): (
        "expanded: dimension 0 has stride 0, so its 8 positions are the same memory; of 24 elements (96 B) only "
        "3 elements (12 B) are stored. Contiguous would need stride 3 there. "
        "No view can join its dimensions; reshape copies."
    ),
    ((8, 3), (1, 1)): (
        "overlapping: different indices share memory: 24 elements (96 B) are read from 10 elements (40 B) stored; "
        "dimension 0 has stride 1, contiguous would need 3. Writing to it in place goes wrong. "
        "No view can join its dimensions; reshape copies."
    ),
    ((8, 4), (8, 2)): (
        "gapped: 31 elements (124 B) of the 63 that it spans, 49 %, are holes; dimension 1 has stride 2, "
        "without holes it would need 1."
    ),
    ((2, 3, 4, 3), (72, 1, 18, 6)): (
        "gapped: 69 elements (276 B) of the 141 that it spans, 49 %, are holes; dimension 3 has stride 6, "
        "without holes it would need 3. It is in another order than its indices, too: dimension 0 outermost, "
        "then 2, 3, 1. For convolution, pooling and interpolation its strides are those of channels_last all the same. "
        "A view can join dimensions 2 and 3; to join others, reshape copies."
    ),
}


@pytest.mark.parametrize(("layout", "said"), SAID.items(), ids=map(str, SAID))
def test_words(layout, said):
    assert explain(Layout(*layout), itemsize=4) == said


def test_bytes_only_where_their_number_is_known():
    assert "B)" not in explain(Layout((2, 3), (3, 1)))


@pytest.mark.parametrize(
    ("elements", "words"), [(249, "996 B"), (250, "1 kB"), (12345, "49.4 kB"), (10**6, "4 MB"), (10**13, "40 TB")]
)
def test_units(elements, words):
    assert f"{elements} elements ({words})" in explain(Layout((elements,), (1,)), itemsize=4)


@settings(max_examples=200)
@given(views())
def test_every_layout_has_words(tensor):
    layout = layout_of(tensor)
    said = explain(layout)
    assert said.startswith(f"{name(layout)}: ")
    assert said.endswith(".")
    assert "\n" not in said


@settings(max_examples=200)
@given(views())
def test_says_so_when_kernels_pick_another_format(tensor):
    layout = layout_of(tensor)
    if name(layout) in ("contiguous", "channels_last", "channels_last_3d"):
        differs = suggested_format(layout) != name(layout)
        assert (f"take it for {suggested_format(layout)}" in explain(layout)) == (differs and tensor.numel() > 0)


def test_names_the_dimension_that_was_sliced():
    assert "dimension 1 has stride 2, without holes it would need 1" in explain(layout_of(torch.zeros(8, 8)[:, ::2]))


@settings(max_examples=200)
@given(views())
def test_what_a_view_can_join(tensor):
    groups = joined(layout_of(tensor))
    assert [dim for group in groups for dim in group] == list(range(tensor.dim()))
    for first in range(tensor.dim()):
        for last in range(first + 1, tensor.dim()):
            merged = (*tensor.shape[:first], math.prod(tensor.shape[first : last + 1]), *tensor.shape[last + 1 :])
            try:
                tensor.view(merged)
            except RuntimeError:
                possible = False
            else:
                possible = True
            large = [dim for dim in range(first, last + 1) if tensor.shape[dim] != 1]
            together = any(set(large) <= set(group) for group in groups)
            assert together == possible


def test_what_a_view_can_join_is_said_where_it_is_not_all():
    assert explain(Layout((2, 3, 4, 5), (60, 1, 15, 3))).endswith(
        " A view can join dimensions 2 and 3; to join others, reshape copies."
    )
    assert explain(Layout((3, 4), (1, 3))).endswith(" No view can join its dimensions; reshape copies.")
    assert "view" not in explain(Layout((2, 3, 4), (12, 4, 1)))
    assert "view" not in explain(Layout((8,), (2,)))
