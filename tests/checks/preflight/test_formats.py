"""SW209 and SW210: conversions that raise, models that are converted in part, and what cures them."""

import pytest
import torch
from torch import nn

from stridewise.checks.preflight import preflight
from stridewise.checks.rules._formats import CONVERT_EACH, format_of
from stridewise.layout import Layout

LAST = torch.channels_last


def codes(model):
    return [finding.code for finding in preflight(model).findings if finding.code in ("SW209", "SW210")]


def convert_each(model):
    exec(CONVERT_EACH, {"model": model, "torch": torch})


def with_buffer(*sizes, dtype=torch.float32):
    model = nn.Conv2d(3, 4, 3)
    model.register_buffer("b", torch.zeros(sizes, dtype=dtype))
    return model


def both():
    return nn.ModuleList([nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.Linear(3, 4)])


@pytest.mark.parametrize(
    "make",
    [both, lambda: with_buffer(1, 2, 3, 4, 5), lambda: with_buffer(1, 2, 3, 4, 5, dtype=torch.int64)],
    ids=["Conv3d", "buffer", "buffer of integers"],
)
def test_it_is_said_of_models_that_raise(make):
    model = make()
    (found,) = preflight(model).findings
    assert (found.code, found.severity) == ("SW209", "note")
    with pytest.raises(RuntimeError) as raised:
        model.to(memory_format=LAST)
    assert f"tried on tensors of these sizes without data: {raised.value}" in found.evidence


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Conv2d(3, 4, 3), lambda: with_buffer(1, 2, 3), lambda: with_buffer(2, 3, 4, 5, dtype=torch.int64)],
    ids=["Conv2d", "3 dimensions", "4 dimensions"],
)
def test_it_is_not_said_of_models_that_do_not(make):
    assert codes(make()) == []
    make().to(memory_format=LAST)


def test_the_loop_converts_and_a_converted_model_is_left_alone():
    model = both()
    convert_each(model)
    assert model[0].weight.is_contiguous(memory_format=LAST)
    assert model[1].weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert codes(model) == []


def test_so_does_the_function_of_torch():
    model = both()
    nn.utils.convert_conv2d_weight_memory_format(model, LAST)
    assert model[0].weight.is_contiguous(memory_format=LAST)
    assert codes(model) == []


def test_a_conversion_that_raised_leaves_a_mixed_model():
    model = nn.ModuleList([nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.Conv2d(3, 4, 3)])
    with pytest.raises(RuntimeError):
        model.to(memory_format=LAST)
    (found,) = [finding for finding in preflight(model).findings if finding.code == "SW210"]
    assert CONVERT_EACH in found.advice
    convert_each(model)
    assert codes(model) == []


def test_the_first_channels_last_weight_turns_what_follows():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].to(memory_format=LAST)
    (found,) = [finding for finding in preflight(model).findings if finding.code == "SW210"]
    assert found.severity == "warning"
    assert found.message.startswith(
        "1 convolution weight is channels_last and 2 are contiguous, such as parameter `1.weight` and"
    )
    formats = []
    for module in model:
        module.register_forward_hook(lambda module, given, out: formats.append(out.is_contiguous()))
    model(torch.randn(2, 3, 12, 12))
    assert formats == [True, False, False]
    model.to(memory_format=LAST)
    assert codes(model) == []


class Scaled(nn.Conv2d):
    pass


class Down(nn.Conv2d):
    pass


def test_classes_of_other_names_are_convolutions_too():
    model = nn.Sequential(Scaled(3, 4, 3), Down(4, 4, 3))
    model[0].to(memory_format=LAST)
    assert codes(model) == ["SW210"]


@pytest.mark.parametrize("place", range(4))
def test_weights_that_are_both_count_for_neither(place):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, groups=4), nn.Linear(4, 4))
    model[place].to(memory_format=LAST)
    model[0].to(memory_format=LAST)
    assert codes(model) == []


def test_format_of():
    assert format_of(Layout((4, 3, 3, 3), (27, 9, 3, 1))) == "contiguous"
    assert format_of(Layout((4, 3, 3, 3), (27, 1, 9, 3))) == "channels_last"
    assert format_of(Layout((4, 3, 3, 3, 3), (81, 1, 27, 9, 3))) == "channels_last_3d"
    assert format_of(Layout((4, 3, 1, 1), (3, 1, 1, 1))) is None
    assert format_of(Layout((4, 3), (1, 4))) is None
