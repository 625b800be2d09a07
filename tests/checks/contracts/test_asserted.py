"""`assert_layout`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stridewise import assert_layout
from stridewise.errors import UsageError

IMAGE = torch.randn(2, 3, 4, 5)
NHWC = IMAGE.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (IMAGE, "contiguous"),
        (IMAGE, torch.contiguous_format),
        (IMAGE, (60, 20, 5, 1)),
        (IMAGE, torch.Size([60, 20, 5, 1])),
        (NHWC, "channels_last"),
        (NHWC, torch.channels_last),
        (NHWC, "dense"),
        (torch.randn(2, 1, 4, 5), "channels_last"),
        (torch.randn(2, 1, 4, 5), (20, 999, 5, 1)),
        (IMAGE.transpose(1, 2), "permuted"),
        (IMAGE[:, :, ::2], "gapped"),
        (IMAGE[:1].expand(2, 3, 4, 5), "expanded"),
        (IMAGE[:1].expand(2, 3, 4, 5), "overlapping"),
        (IMAGE, "last_stride_1"),
        (torch.tensor(1.0), "contiguous"),
        (torch.empty(2, 3, device="meta"), "contiguous"),
    ],
)
def test_it_holds(tensor, expected):
    assert_layout(tensor, expected)


def test_fake_tensors_have_the_layout_that_real_ones_would_have():
    with FakeTensorMode() as mode:
        image = mode.from_tensor(NHWC)
        assert_layout(image, "channels_last")
        assert_layout(torch.ones(3, 4).t(), (1, 4))
        with pytest.raises(AssertionError, match=r"not contiguous: sizes \(2, 3, 4, 5\), strides \(60, 1, 15, 3\)"):
            assert_layout(image, "contiguous")
    symbolic = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(IMAGE, static_shapes=False)
    guards = len(symbolic.fake_mode.shape_env.guards)
    with pytest.raises(AssertionError, match="FakeTensor: its sizes are symbols, no numbers"):
        assert_layout(symbolic, "contiguous")
    assert len(symbolic.fake_mode.shape_env.guards) == guards


@pytest.mark.parametrize(
    ("tensor", "expected", "said"),
    [
        (
            IMAGE,
            "channels_last",
            [
                "the layout is contiguous, not channels_last: sizes (2, 3, 4, 5), strides (60, 20, 5, 1)",
                "contiguous: its 120 elements (480 B) lie in memory without holes, in the order of their indices.",
                "Dimension 1 has stride 20, channels_last needs 1.",
                "It would be with x.contiguous(memory_format=torch.channels_last)",
            ],
        ),
        (
            IMAGE,
            (1, 2),
            [
                "the layout is contiguous, not of strides (1, 2): sizes (2, 3, 4, 5), strides (60, 20, 5, 1)",
                "contiguous: its 120 elements (480 B) lie in memory without holes, in the order of their indices.",
                "It has 4 dimensions, and 2 strides are expected.",
            ],
        ),
        (
            IMAGE[0],
            torch.channels_last,
            [
                "the layout is contiguous, not channels_last: sizes (3, 4, 5), strides (20, 5, 1)",
                "contiguous: its 60 elements (240 B) lie in memory without holes, in the order of their indices.",
                "It has 3 dimensions, and channels_last is for 4.",
            ],
        ),
        (
            IMAGE.to_sparse(),
            "contiguous",
            [
                "the tensor has no strides to be contiguous: "
                "sparse_coo: it has no strides; layout classes are for strided tensors."
            ],
        ),
    ],
)
def test_it_says_what_the_layout_is_why_and_what_would_help(tensor, expected, said):
    with pytest.raises(AssertionError) as raised:
        assert_layout(tensor, expected)
    assert str(raised.value).splitlines() == said


@given(
    tensor=st.sampled_from(
        [IMAGE, NHWC, IMAGE.transpose(1, 2), IMAGE[:, :, ::2], IMAGE[:1].expand(2, 3, 4, 5), IMAGE[0]]
    ),
    expected=st.sampled_from(
        ["contiguous", "channels_last", "dense", "last_stride_1", "non_overlapping", "channels_last_3d"]
    )
    | st.permutations([60, 20, 5, 1]).map(tuple),
)
def test_what_it_advises_does_it(tensor, expected):
    try:
        assert_layout(tensor, expected)
    except AssertionError as error:
        cure = str(error).partition("It would be with ")[2]
        if cure:
            made = eval(cure, {"torch": torch, "x": tensor})
            assert_layout(made, expected)
            assert torch.equal(made, tensor)


@pytest.mark.parametrize(
    ("tensor", "expected", "said"),
    [
        (IMAGE, "chanels_last", "'chanels_last' is no layout.\nDid you mean channels_last?"),
        (IMAGE, torch.preserve_format, "torch.preserve_format is no layout"),
        (IMAGE, (1, -2), "are no strides"),
        (IMAGE, 3, "3 is no layout"),
        ([1], "dense", "assert_layout was given list"),
    ],
)
def test_mistakes(tensor, expected, said):
    with pytest.raises(UsageError) as raised:
        assert_layout(tensor, expected)
    assert said in str(raised.value)
