"""The format that kernels pick is not what `is_contiguous` says: dimensions of size 1 count."""

import pytest
import torch
import torch.nn.functional as F

from stridewise.layout import is_contiguous, name, suggested_format

from .chains import layout_of

ONE_IMAGE = torch.zeros(1, 2, 4, 6).to(memory_format=torch.channels_last)
BATCH = torch.zeros(4, 2, 4, 6).to(memory_format=torch.channels_last)
CLIP = torch.zeros(1, 2, 4, 6, 8).to(memory_format=torch.channels_last_3d)

DENSE_IN_CHANNELS_LAST = {
    "as made": (ONE_IMAGE, "channels_last"),
    "reshaped to its own sizes": (ONE_IMAGE.reshape(1, 2, 4, 6), "contiguous"),
    "taken out and put back": (ONE_IMAGE[0][None], "contiguous"),
    "cut from a batch": (BATCH[:1], "channels_last"),
    "picked from a batch": (BATCH[0][None], "contiguous"),
    "a clip taken out and put back": (CLIP[0][None], "contiguous"),
    "a clip as made": (CLIP, "channels_last_3d"),
}
EITHER = {
    "one channel, new": (torch.zeros(4, 1, 5, 5), "contiguous"),
    "one channel, to": (torch.zeros(4, 1, 5, 5).to(memory_format=torch.channels_last), "channels_last"),
    "one channel, contiguous": (torch.zeros(4, 1, 5, 5).contiguous(memory_format=torch.channels_last), "contiguous"),
    "one pixel, new": (torch.zeros(4, 8, 1, 1), "contiguous"),
    "one pixel, to": (torch.zeros(4, 8, 1, 1).to(memory_format=torch.channels_last), "channels_last"),
    "one number each": (torch.zeros(4, 1, 1, 1).to(memory_format=torch.channels_last), "contiguous"),
}
STRIDED = {
    "every other column": (BATCH[..., ::2], "channels_last"),
    "one image for all": (ONE_IMAGE.expand(4, -1, -1, -1), "contiguous"),
    "some channels": (BATCH[:, :1], "channels_last"),
    "no image": (BATCH[:0], "contiguous"),
    "a matrix": (torch.zeros(3, 4).t(), "contiguous"),
}


@pytest.mark.parametrize(("tensor", "suggested"), DENSE_IN_CHANNELS_LAST.values(), ids=DENSE_IN_CHANNELS_LAST)
def test_dense_in_channels_last(tensor, suggested):
    layout = layout_of(tensor)
    memory_format = "channels_last" if tensor.ndim == 4 else "channels_last_3d"
    assert is_contiguous(layout, memory_format)
    assert name(layout) == memory_format
    assert suggested_format(layout) == suggested


@pytest.mark.parametrize(("tensor", "suggested"), EITHER.values(), ids=EITHER)
def test_dense_in_both_formats(tensor, suggested):
    layout = layout_of(tensor)
    assert is_contiguous(layout)
    assert is_contiguous(layout, "channels_last")
    assert name(layout) == "contiguous"
    assert suggested_format(layout) == suggested


@pytest.mark.parametrize(("tensor", "suggested"), STRIDED.values(), ids=STRIDED)
def test_dense_in_neither(tensor, suggested):
    assert suggested_format(layout_of(tensor)) == suggested


@pytest.mark.parametrize("tensor", [tensor for tensor, _ in DENSE_IN_CHANNELS_LAST.values() if tensor.ndim == 4])
@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: F.conv2d(x, torch.zeros(5, 2, 1, 1)),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.interpolate(x, scale_factor=2),
    ],
    ids=["conv2d", "max_pool2d", "interpolate"],
)
def test_kernels_pick_it(tensor, kernel):
    assert name(layout_of(kernel(tensor))) == suggested_format(layout_of(tensor))


def test_to_and_contiguous_disagree():
    image = ONE_IMAGE[0][None]
    assert image.contiguous(memory_format=torch.channels_last) is image
    assert suggested_format(layout_of(image.to(memory_format=torch.channels_last))) == "channels_last"
