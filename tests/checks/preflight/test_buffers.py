"""SW221 and SW222: buffers that hand their order on, and weights of recurrent layers."""

import copy
import warnings

import pytest
import torch
from torch import nn

from stridewise.checks.preflight import preflight
from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rules import sw222
from stridewise.layout import Layout

LAST = torch.channels_last
BUFFERS = {
    "contiguous": lambda: torch.randn(4, 6),
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(3, 4, 5).permute(2, 0, 1),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=LAST),
    "column": lambda: torch.randn(1, 6).t(),
    "channel": lambda: torch.randn(1, 3, 1, 1).to(memory_format=LAST),
    "vector": lambda: torch.randn(6),
    "positions": lambda: torch.arange(6).expand(1, -1),
}


def named(model):
    return [finding for finding in preflight(model).findings if finding.code == "SW221"]


def with_buffer(tensor, model=None):
    model = model if model is not None else nn.Module()
    model.register_buffer("table", tensor)
    return model


@pytest.mark.parametrize("name", BUFFERS)
def test_it_is_said_where_the_first_operand_decides(name):
    table = BUFFERS[name]()
    x = torch.ones(table.shape)
    spreads = not (table + x).is_contiguous() and (x + table).is_contiguous()
    found = named(with_buffer(table))
    assert bool(found) == spreads
    if found:
        first, second = (table + x).stride(), (x + table).stride()
        assert found[0].severity == "note"
        assert found[0].evidence == (
            f"first with a contiguous tensor of its sizes: the result has strides {first}, and {second} the other way"
            " round",
        )
        assert named(with_buffer(table.contiguous())) == []
        assert (table.contiguous() + x).is_contiguous()


def test_a_converted_model_has_converted_buffers():
    model = with_buffer(torch.randn(2, 3, 4, 5), nn.Conv2d(3, 4, 3)).to(memory_format=LAST)
    assert not model.table.is_contiguous()
    assert named(model) == []


def weights(device, storages):
    layouts = (Layout((16, 4), (4, 1)), Layout((16,), (1,)))
    return Subject(
        tensors=tuple(
            StateTensor(
                names=(f"rnn.weight{number}",),
                kind="parameter",
                module="rnn",
                module_type="LSTM",
                layout=layouts[number],
                dtype="float32",
                itemsize=4,
                device=device,
                storage=storage,
                storage_bytes=256,
                requires_grad=True,
                persistent=True,
            )
            for number, storage in enumerate(storages)
        )
    )


def test_weights_in_pieces_are_told_where_cudnn_takes_them():
    (found,) = sw222.check(weights("cuda", (0, 1)))
    assert (found.severity, found.site.module) == ("note", "rnn")
    assert found.message == (
        "The 2 weights of `rnn` lie in 2 pieces of memory: cuDNN copies them into one at each call."
    )
    assert sw222.check(weights("cuda", (0, 0))) == []
    assert sw222.check(weights("cpu", (0, 1))) == []


def test_on_the_cpu_it_does_not_matter():
    """No warning, whatever was done to the weights; `flatten_parameters` does nothing."""
    model = copy.deepcopy(nn.LSTM(4, 8, 2))
    model.weight_hh_l0 = nn.Parameter(model.weight_hh_l0.detach().clone())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(5, 2, 4))
    addresses = [p.data_ptr() for p in model.parameters()]
    model.flatten_parameters()
    assert addresses == [p.data_ptr() for p in model.parameters()]
    assert preflight(model).findings == ()
