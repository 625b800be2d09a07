import ctypes
import sys
from types import ModuleType

import pytest
import torch

from ..texts import findings, fixed, rule_of, run

CODE = "SW319"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a compiled module that takes its tensors for contiguous, as most do."""

    def scale(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape)
        ctypes.memmove(out.data_ptr(), x.data_ptr(), 4 * x.numel())
        return out * 2

    module = ModuleType("my_extension")
    module.scale = scale  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_extension", module)


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("at", [0, 1])
def test_the_gradient_is_wrong_and_right_with_the_fix(at: int) -> None:
    example = rule_of(CODE).fires[at]
    gradient, right = run(example.source)["program"]()
    assert not torch.equal(gradient, right)
    gradient, right = run(example.fixed or "")["program"]()
    assert torch.equal(gradient, right)


def strides_after(behind: str) -> tuple[int, ...]:
    """The strides of the gradient that a function gets, by what is computed from its output `y` of (3, 4)."""
    seen = []

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            seen.append(grad.stride())
            return grad.clone()

    x = torch.ones(3, 4, requires_grad=True)
    eval(behind, {"torch": torch, "y": Seen.apply(x), "w": torch.ones(4, 3), "wide": torch.ones(3, 8)}).backward()
    return tuple(seen[0])


def test_gradients_come_with_the_strides_that_it_says() -> None:
    assert strides_after("y.sum()") == (0, 0)
    assert strides_after("y.mean()") == (4, 1)
    assert strides_after("(y.t() * w).sum()") == (1, 3)
    assert strides_after("(torch.cat([y, w.t()], 1) * wide).sum()") == (8, 1)


START = """
import torch
import triton
from torch.autograd import Function
from kernels import add_kernel, lib

"""
CLASS = """
class Double({base}):
    @staticmethod
    def forward(ctx, x):
        return lib.double({given})

    @staticmethod
    def backward(ctx, grad_output):
        {body}
"""


@pytest.mark.parametrize(
    "body",
    [
        "return lib.double(grad_output)",
        "return lib.double(grad_output, grad_output.numel())",
        "lib.double_inplace(grad_output.data_ptr(), grad_output.numel())",
        "grad = torch.empty_like(grad_output)\n        add_kernel[(1,)](grad_output, grad)\n        return grad",
        "x, = ctx.saved_tensors\n        return lib.double(x, grad_output)",
    ],
)
@pytest.mark.parametrize("base", ["Function", "torch.autograd.Function"])
def test_nobody_looks(body: str, base: str) -> None:
    text = START + CLASS.format(base=base, given="x.contiguous()", body=body)
    (found,) = findings(text, CODE)
    assert "`grad_output`" in found.message
    assert findings(text, "SW308") == ()


@pytest.mark.parametrize(
    "body",
    [
        "return lib.double(grad_output.contiguous())",
        "grad_output = grad_output.contiguous()\n        return lib.double(grad_output)",
        "assert grad_output.is_contiguous()\n        return lib.double(grad_output)",
        "return lib.double(grad_output, grad_output.stride())",
        "grad = grad_output.contiguous()\n        return lib.double(grad)",
        "return torch.mul(grad_output, 2)",
        "return grad_output * 2",
        "return helper(grad_output)",
    ],
)
def test_somebody_looks_or_no_kernel_gets_it(body: str) -> None:
    assert findings(START + CLASS.format(base="Function", given="x.contiguous()", body=body), CODE) == ()


def test_an_extension_that_gets_tensors_as_they_come_may_take_any_strides() -> None:
    text = START + CLASS.format(base="Function", given="x", body="return lib.double(grad_output)")
    assert findings(text, CODE) == ()


def test_another_class_has_no_gradients() -> None:
    body = "return lib.double(grad_output)"
    assert findings(START + CLASS.format(base="object", given="x.contiguous()", body=body), CODE) == ()


SEVERAL = """
import ctypes
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, *grads):
        grad = torch.empty(3, 4)
        {0}
        ctypes.memmove(grad.data_ptr(), {1}.data_ptr(), 48)
        return grad * 2

def program():
    x = torch.ones(3, 4, requires_grad=True)
    weight = torch.arange(12.0).reshape(4, 3)
    (Double.apply(x).t() * weight).sum().backward()
    return x.grad, 2 * weight.t()
"""


@pytest.mark.parametrize(
    ("bound", "name"), [("first, = grads", "first"), ("[first] = grads", "first"), ("first = grads[0]", "first")]
)
def test_a_gradient_out_of_several(bound: str, name: str) -> None:
    text = SEVERAL.format(bound, name)
    got, wanted = run(text)["program"]()
    assert not torch.equal(got, wanted)
    (found,) = findings(text, CODE)
    assert f"`{name}`" in found.message
    got, wanted = run(fixed(text, CODE))["program"]()
    assert torch.equal(got, wanted)
    assert findings(fixed(text, CODE), CODE) == ()


def test_a_gradient_that_has_no_name() -> None:
    text = SEVERAL.format("assert len(grads) == 1", "grads[0]")
    got, wanted = run(text)["program"]()
    assert not torch.equal(got, wanted)
    (found,) = findings(text, CODE)
    assert found.edits == ()
    assert found.advice == "`grad = grads[0].contiguous()` before it, and hand that over."


@pytest.mark.parametrize(
    "bound",
    [
        "first = grads[0].contiguous()",
        "grads = [each.contiguous() for each in grads]; first = grads[0]",
        "check(*grads); first = grads[0]",
        "first, *others = grads",
        "first = grads[0]; first = first.contiguous()",
        "first = grads[0]; assert grads[0].is_contiguous()",
    ],
)
def test_somebody_looks_at_one_of_several(bound: str) -> None:
    assert not [each for each in findings(SEVERAL.format(bound, "first"), CODE) if "`first`" in each.message]
