"""With random numbers drawn at each element's own place, results do not depend on layout."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stridewise.repair.trial.drawing import DrawnInPlace

DRAWING = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout2d": lambda x: F.dropout2d(x[None, :, :, None], 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "rand_like": torch.rand_like,
    "randint_like": lambda x: torch.randint_like(x, 100),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "multinomial": lambda x: torch.multinomial(x.abs(), 3),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "randn": lambda x: x + torch.randn(()),
}


@pytest.mark.parametrize("name", DRAWING)
def test_layout_does_not_decide_what_is_drawn(name):
    strided = torch.randn(64, 32).t()
    drawn: list[Tensor] = []
    for x in (strided, strided.contiguous()):
        torch.manual_seed(0)
        with DrawnInPlace() as mode:
            drawn.append(DRAWING[name](x))
        assert mode.draws == 1
    assert torch.equal(*drawn)


def test_results_keep_the_strides_that_they_would_have():
    strided = torch.randn(64, 32).t()
    with DrawnInPlace():
        assert F.dropout(strided, 0.5).stride() == strided.stride()


def test_gradients_belong_to_what_was_drawn():
    x = torch.randn(64, 32).t().requires_grad_()
    with DrawnInPlace():
        y = F.dropout(x, 0.5)
        y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, y != 0)


def test_what_draws_nothing_is_left_alone():
    with DrawnInPlace() as mode:
        torch.ones(3).add_(1)
    assert mode.draws == 0
