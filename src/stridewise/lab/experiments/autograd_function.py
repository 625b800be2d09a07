"""A custom autograd Function whose kernel reads memory in order, with a test for contiguity in forward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def _in_order(value: Tensor) -> Tensor:
    """What a kernel sees that is given a pointer and sizes, and no strides."""
    return value.as_strided(value.shape, torch.empty(value.shape, device="meta").stride())


class _Triple(torch.autograd.Function):
    """Three times `x`, by a kernel that takes its input for contiguous; raises if it isn't."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise RuntimeError("x must be contiguous")
        return _in_order(x) * 3

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _in_order(grads[0]) * 3


def run(bench: Bench, rows: int, columns: int) -> None:
    """Forward with a strided input; backward with the gradients that two common losses send."""
    x = bench.randn(rows, columns, requires_grad=True)
    weight = bench.randn(columns, rows)
    triple: Callable[[Tensor], Tensor] = _Triple.apply
    forward, backward = _strides_of_a_function(x.t())
    as_it_is = forward == x.t().stride()
    bench.expect("C103", "a strided input comes to `forward` as it is", as_it_is, f"strides {forward}")
    dense = backward == torch.empty(x.t().shape, device="meta").stride()
    text = "the gradient of `y.sum()` comes to `backward` contiguous"
    bench.expect("C103", text, dense, f"strides {backward}")
    (expected,) = torch.autograd.grad(((x * 3).t() * weight).sum(), x)
    (found,) = torch.autograd.grad((triple(x).t() * weight).sum(), x)
    off = (found - expected).abs().max().item()
    text = "the gradient through a transpose is right"
    bench.expect("C103", text, torch.allclose(found, expected), f"off by up to {off:.2g}, and no error")

    times = bench.compare(
        "A test in Python, and a kernel that visits each element",
        {"x.neg()": lambda: weight.neg(), "x.is_contiguous()": lambda: weight.is_contiguous()},
    )
    bench.predict("C104", times.faster("x.is_contiguous()", than="x.neg()"))


def _strides_of_a_function(x: Tensor) -> list[tuple[int, ...]]:
    """Of what a Function's forward is given, and of what `sum` behind it sends to its backward."""
    seen: list[tuple[int, ...]] = []

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append(x.stride())
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            seen.append(grads[0].stride())
            return grads[0]

    run: Callable[[Tensor], Tensor] = Seen.apply
    torch.autograd.grad(run(x).sum(), x)
    return seen


EXPERIMENT = Experiment(
    name="autograd-function",
    title="Custom Functions and strided gradients",
    method="The strides that come to a Function's forward and backward. Then one that reads memory in order, as a "
    "kernel with a bare pointer does, and raises in forward for what is not contiguous: its gradients against those of "
    "the same formula without it.",
    claims={
        "C103": Claim(
            "4.3",
            "A custom Function must raise in `forward` if an input is not contiguous.",
            "Some contract is needed, in backward too, whose gradients are often strided: `sum()` sends strides of 0. "
            "Better than to raise is to copy inside, or to take strides.",
        ),
        "C104": Claim(
            "4.3",
            "Such a test in Python is cheaper than one in a kernel.",
            "It reads a flag; any kernel takes a launch first.",
        ),
    },
    run=run,
    cpu={"rows": 160, "columns": 120},
)
