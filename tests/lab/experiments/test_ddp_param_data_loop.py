"""The article's loop."""

import torch
from torch import nn

from stridewise.lab.experiments.ddp_param_data_loop import loop


def test_it_makes_parameters_and_gradients_row_major():
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(torch.randn(3, 4).t())
    layer(torch.randn(2, 3)).sum().backward()
    assert not layer.weight.is_contiguous()
    values, bias = layer.weight.detach().clone(), layer.bias.data_ptr()

    loop(layer)

    assert layer.weight.is_contiguous()
    assert layer.weight.grad.is_contiguous()
    assert torch.equal(layer.weight, values)
    assert layer.bias.data_ptr() == bias, "what is contiguous stays where it is"
