"""What a function writes to a converted argument reaches the caller, however it was given and however it ends."""

import pytest
import torch

from stridewise.checks.contracts import expect_layout
from stridewise.errors import UsageError


def strided() -> torch.Tensor:
    return torch.zeros(4, 3).t()


def test_one_tensor_given_twice_stays_one():
    @expect_layout(x="contiguous", y="contiguous", mode="convert")
    def f(x, y):
        x.add_(1)
        y.mul_(2)

    x = strided()
    f(x, x)
    assert torch.equal(x, torch.full((3, 4), 2.0))


def test_what_was_written_before_an_error_stays():
    @expect_layout(x="contiguous", mode="convert")
    def f(x):
        x.fill_(7)
        raise ValueError("too late")

    x = strided()
    with pytest.raises(ValueError, match="too late"):
        f(x)
    assert torch.equal(x, torch.full((3, 4), 7.0))


def test_a_leaf_may_be_written_where_gradients_are_off():
    @expect_layout(w="contiguous", mode="convert")
    def clamp_(w):
        with torch.no_grad():
            w.clamp_(-1, 1)

    w = torch.nn.Parameter(10 * torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    clamp_(w)
    assert w.max() == 1
    assert w.is_leaf


def test_generators_can_not_convert():
    with pytest.raises(UsageError, match="generator"):

        @expect_layout(x="contiguous", mode="convert")
        def f(x):
            yield x.fill_(5)


def test_it_has_to_be_told_what_to_hold():
    with pytest.raises(UsageError, match="was not told what to hold"):

        @expect_layout
        def f(x): ...
