"""SW218 and SW223: strides of dimensions of size 1, in samples and parameters."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stridewise.checks.preflight import preflight
from stridewise.checks.rules.sw218 import looks_other
from stridewise.layout import Layout

LAST = torch.channels_last
KERNELS = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(5, 3, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
}


def images():
    return torch.randn(4, 3, 8, 8).to(memory_format=LAST)


SAMPLES = {
    "x[0][None]": lambda: images()[0][None],
    "reshape": lambda: images()[:1].reshape(1, 3, 8, 8),
    "permute, then unsqueeze": lambda: torch.randn(8, 8, 3).permute(2, 0, 1).unsqueeze(0),
    "x[:1]": lambda: images()[:1],
    "unsqueeze, then permute": lambda: torch.randn(8, 8, 3)[None].permute(0, 3, 1, 2),
    "contiguous": lambda: torch.randn(1, 3, 8, 8),
    "a batch": images,
}


def named(sample, code, model=None):
    return [finding for finding in preflight(model, sample=(sample,)).findings if finding.code == code]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_said_where_kernels_drop_channels_last(name, kernel):
    x = SAMPLES[name]()
    drops = x.is_contiguous(memory_format=LAST) and not x.is_contiguous() and KERNELS[kernel](x).is_contiguous()
    assert bool(named(x, "SW218")) == drops
    for cured in (x.to(memory_format=LAST), x.clone(memory_format=LAST)):
        assert named(cured, "SW218") == []
        assert KERNELS[kernel](cured).is_contiguous(memory_format=LAST)
        assert not KERNELS[kernel](cured).is_contiguous()


def test_contiguous_is_no_cure():
    x = images()[0][None]
    assert x.contiguous(memory_format=LAST).stride() == x.stride()
    (found,) = named(x, "SW218", nn.MaxPool2d(2))
    assert found.severity == "note"
    assert "the stride of its batch dimension is 3, not 192" in found.message


def test_weights_in_channels_last_are_not_fooled():
    x = images()[0][None]
    assert not nn.Conv2d(3, 5, 3).to(memory_format=LAST)(x).is_contiguous()


def test_volumes_too():
    volume = torch.randn(2, 3, 4, 8, 8).to(memory_format=torch.channels_last_3d)[0][None]
    assert F.max_pool3d(volume, 2).is_contiguous()
    assert len(named(volume, "SW218")) == 1
    cured = volume.to(memory_format=torch.channels_last_3d)
    assert not F.max_pool3d(cured, 2).is_contiguous()
    assert named(cured, "SW218") == []


@settings(max_examples=200)
@given(st.tuples(*[st.integers(1, 3)] * 4), st.permutations(range(4)), st.integers(0, 3), st.integers(1, 40))
def test_it_is_what_a_kernel_makes_of_it(sizes, order, dim, odd):
    """Whatever lies dense in channels_last, with any stride where a size is 1."""
    x = torch.zeros([sizes[at] for at in order]).permute([order.index(at) for at in range(4)])
    if sizes[dim] == 1:
        x = x.as_strided(sizes, [odd if at == dim else stride for at, stride in enumerate(x.stride())])
    given_ = Layout(tuple(x.shape), x.stride())
    result = F.interpolate(x, scale_factor=2.0)
    if looks_other(given_):
        assert result.is_contiguous()
    elif x.is_contiguous(memory_format=LAST) and not x.is_contiguous():
        assert result.is_contiguous(memory_format=LAST)


def odd():
    return torch.arange(8.0).reshape(1, 1, 8).transpose(1, 2)


def test_contiguous_leaves_an_odd_last_stride():
    x = odd()
    (found,) = named(x, "SW223")
    assert found.severity == "note"
    for same in (x, x.contiguous(), x.to(memory_format=torch.contiguous_format)):
        assert same.is_contiguous()
        with pytest.raises(RuntimeError, match=r"self\.stride\(-1\) must be 1"):
            same.view(torch.int8)
    cured = x.clone(memory_format=torch.contiguous_format)
    assert named(cured, "SW223") == []
    assert cured.view(torch.int8).shape == (1, 8, 4)


def test_parameters_with_an_odd_last_stride_are_cured_in_place():
    model = nn.Linear(1, 8)
    model.weight = nn.Parameter(torch.randn(1, 8).t())
    (found,) = preflight(model).findings
    assert found.code == "SW223"
    assert found.advice == "`p.data = p.data.clone(memory_format=torch.contiguous_format)`."
    model.weight.data = model.weight.data.clone(memory_format=torch.contiguous_format)
    assert preflight(model).findings == ()


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(8.0)[:, None],
        torch.randn(8, 5)[:, :1],
        torch.randn(4, 3, 1, 1).to(memory_format=LAST),
        torch.randn(4, 1, 1, 1, 1).to(memory_format=torch.channels_last_3d),
        torch.arange(8).expand(1, -1),
        torch.zeros(0, 1).t(),
        torch.zeros(1),
    ],
    ids=["unsqueezed", "sliced", "channels_last", "channels_last_3d", "expanded", "empty", "one"],
)
def test_ordinary_strides_of_size_1_are_not_odd(x):
    assert named(x, "SW223") == []
    model = nn.Module()
    model.register_buffer("x", x)
    assert [finding.code for finding in preflight(model).findings if finding.code == "SW223"] == []
