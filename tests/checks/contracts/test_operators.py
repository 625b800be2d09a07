"""Contracts on operators of `torch.library`: what is given back is called in the operator's place."""

import inspect

import pytest
import torch
from torch.library import custom_op

from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError, UsageError

GOOD = torch.arange(12.0).reshape(3, 4)
BAD = torch.arange(12.0).reshape(4, 3).t()
SEEN = []


@expect_layout(x="contiguous", mode="convert", grads="contiguous")
@custom_op("stridewise_contracts::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float = 2.0, bias: torch.Tensor | None = None) -> torch.Tensor:
    SEEN.append(x.is_contiguous())
    return x * factor


@scale.register_fake
def _(x, factor=2.0, bias=None):
    return torch.empty_like(x)


def _backward(ctx, grad):
    SEEN.append(grad.is_contiguous())
    return grad * ctx.factor, None, None


scale.register_autograd(_backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))


@custom_op("stridewise_contracts::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> None:
    x.as_strided((x.numel(),), (1,)).add_(1)


def test_a_custom_op():
    SEEN.clear()
    assert torch.equal(scale(BAD), BAD * 2)
    x = torch.randn(4, 3, requires_grad=True)
    scale(x.t(), 3.0).sum().backward()
    assert x.grad.unique().tolist() == [3]
    assert SEEN == [True, True, True]
    assert list(inspect.signature(scale).parameters) == ["x", "factor", "bias"]
    assert scale.__name__ == "scale"


@pytest.mark.needs_torch("2.7", "Dynamo compiles no hook of a gradient")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_custom_op_compiled(backend):
    torch._dynamo.reset()
    SEEN.clear()
    compiled = torch.compile(lambda x: scale(x.t() + 1), backend=backend, fullgraph=True)
    x = torch.randn(3, 4, requires_grad=True)
    compiled(x).sum().backward()
    assert x.grad.unique().tolist() == [2]
    assert all(SEEN)


def test_overloads_and_packets():
    for op in (torch.ops.stridewise_contracts.add_one, torch.ops.stridewise_contracts.add_one.default, add_one):
        held = expect_layout(x="contiguous")(op)
        x = torch.zeros(3, 4)
        held(x)
        assert x.sum() == 12
        with pytest.raises(ContractError, match="`stridewise_contracts::add_one` needs `x` to be contiguous"):
            held(x[:, ::2])
        assert x.sum() == 12
    with pytest.raises(ContractError):
        expect_layout(self="contiguous")(torch.ops.aten.relu.default)(BAD)


def test_a_packet_with_several_overloads_is_refused():
    with pytest.raises(UsageError, match=r"aten.add has several overloads; name one, as in aten.add.Tensor"):
        expect_layout(self="contiguous")(torch.ops.aten.add)
    with pytest.raises(UsageError, match="has no argument 'y'"):
        expect_layout(y="contiguous")(add_one)


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
def test_what_an_operator_writes_is_written_back(backend):
    torch._dynamo.reset()
    held = expect_layout(x="contiguous", mode="convert")(add_one)
    base = torch.zeros(3, 4)
    call = held if backend is None else torch.compile(held, backend=backend, fullgraph=True)
    call(base[:, ::2])
    assert base.tolist() == [[1, 0, 1, 0]] * 3
