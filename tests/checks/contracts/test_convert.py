"""`mode="convert"`: values and gradients as without, and nothing that the function writes is lost."""

import ctypes

import pytest
import torch

from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError


def converting(**kinds):
    return expect_layout(mode="convert", **kinds)


def test_values_and_gradients():
    seen = []

    @converting(x="contiguous", w="channels_last")
    def function(x, w):
        seen.append((x.is_contiguous(), w.is_contiguous(memory_format=torch.channels_last)))
        return x.sin() * w.square().sum()

    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(function(x.t(), w), function.__wrapped__(x.t(), w))
    assert seen[0] == (True, True)
    assert torch.autograd.gradcheck(lambda x, w: function(x.t(), w), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: function(x.t(), w), (x, w))


def test_all_dtypes():
    function = converting(x="contiguous")(lambda x: x)
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.int8,
        torch.bool,
        torch.complex64,
        torch.complex128,
        torch.uint16,
    ):
        x = torch.ones(3, 4, dtype=dtype).t()
        assert function(x).is_contiguous()
        assert function(x.conj()).is_contiguous()
    assert function(torch.zeros(3, 4).to(torch.float8_e4m3fn).t()).is_contiguous()


def test_an_update_in_place_reaches_the_callers_tensor():
    @converting(x="contiguous")
    def function(x, y=1):
        x += y
        return x

    base = torch.zeros(4, 6)
    x = base[:, ::2].t()
    given = function(x)
    assert given is x
    assert x.unique().tolist() == [1]
    assert base[:, 1::2].unique().tolist() == [0]
    assert function(x=x, y=2) is x
    assert x.unique().tolist() == [3]


def test_an_update_through_a_pointer_reaches_it_too():
    @converting(out="contiguous")
    def kernel(out):
        memory = (ctypes.c_float * out.numel()).from_address(out.data_ptr())
        for at in range(out.numel()):
            memory[at] = at

    out = torch.zeros(4, 3).t()
    kernel(out)
    assert torch.equal(out, torch.arange(12.0).reshape(3, 4))
    nans = torch.full((4, 3), float("nan")).t()
    version = nans._version
    converting(x="contiguous")(lambda x: None)(nans)
    assert nans._version == version, "what was not written is not written back"


def test_in_inference_mode_too():
    @converting(x="contiguous")
    def function(x):
        return x.add_(1)

    with torch.inference_mode():
        x = torch.zeros(4, 3).t()
        assert function(x) is x
        assert x.unique().tolist() == [1]
    y = torch.zeros(4, 3).t()
    with torch.no_grad():
        assert function(y) is y
    assert y.unique().tolist() == [1]


def test_gradients_through_an_update_in_place():
    @converting(x="contiguous")
    def function(x):
        return x.mul_(x.detach() + 1)

    def step(call):
        leaf = torch.arange(12.0).reshape(3, 4).requires_grad_()
        call((leaf * 2).t()).sum().backward()
        return leaf.grad

    assert torch.equal(step(function), step(function.__wrapped__))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        function(torch.zeros(3, 4).t().requires_grad_())


def test_results_in_a_tuple():
    @converting(out="contiguous")
    def function(out):
        out.fill_(1)
        return out, out.sum()

    out = torch.zeros(4, 3).t()
    got, total = function(out)
    assert got is out
    assert total == 12


def test_an_argument_that_has_no_memory_of_its_own_to_write_back_to():
    @converting(x="contiguous")
    def function(x):
        return x.add_(1)

    with pytest.raises(RuntimeError, match="single memory location"):
        function(torch.zeros(3, 1).expand(3, 4))


def test_what_no_copy_can_be():
    function = converting(x="channels_last")(lambda x: x)
    with pytest.raises(ContractError, match="It has 3 dimensions"):
        function(torch.zeros(3, 4, 5))


def test_gradients_are_converted():
    seen = []

    @converting(grads="contiguous")
    def function(x):
        y = x * 2
        y.register_hook(lambda grad: seen.append(grad.is_contiguous()))
        return y

    x = torch.randn(3, 4, requires_grad=True)
    function(x).sum().backward()
    expected, held = torch.autograd.grad((x * 2).square().sum(), x), torch.autograd.grad(function(x).square().sum(), x)
    assert torch.equal(held[0], expected[0])
    assert seen[0] is False, "a hook that was there before sees the gradient as it came"

    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(grad.is_contiguous())
            return grad

    seen.clear()
    converting(grads="contiguous")(lambda x: Spy.apply(x))(x).sum().backward()
    assert seen == [True]


def test_gradients_that_break_a_contract_raise_from_backward():
    @expect_layout(grads="contiguous")
    def function(x):
        return {"y": [x * 2], "n": 3}

    x = torch.randn(3, 4, requires_grad=True)
    function(x)["y"][0].mul(torch.ones(3, 4)).sum().backward()
    with pytest.raises(ContractError, match="the gradient of output"):
        function(x)["y"][0].sum().backward()
    leaf = torch.randn(3, requires_grad=True)
    same = expect_layout(grads="contiguous")(lambda x: x)(leaf)
    assert same._backward_hooks is None, "a leaf that passes through is not the function's"
