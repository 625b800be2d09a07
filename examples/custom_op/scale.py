"""A C++ operator as it should be bound: shapes for the compiler, a backward for any gradient, a contract at the front.

`python examples/custom_op/scale.py` builds it, which takes a C++ compiler, ninja and half a minute.
"""

import functools
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

from stridewise.checks.contracts import expect_layout


@functools.cache
def build(directory: str | None = None) -> None:
    """Compile the operators and register what belongs to them."""
    source = str(Path(__file__).with_name("scale.cpp"))
    load("stridewise_example", [source], build_directory=directory, is_python_module=False)

    # Sizes and strides of the result: those that the kernel gives for every layout, row-major and not those of x.
    @torch.library.register_fake("stridewise_example::scale")
    def _(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape)

    @torch.library.register_fake("stridewise_example::scale_flat")
    def _(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.new_empty(x.shape)

    # A gradient comes in any layout: a sum() hands on an expanded one. Torch's operators and `scale` take it as it is.
    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return scale(grad, w), (grad * x).sum(0)

    torch.library.register_autograd("stridewise_example::scale", backward, setup_context=save)

    def flat_backward(ctx, grad):
        return scale_flat(grad, ctx.factor), None

    def keep_factor(ctx, inputs, output):
        ctx.factor = inputs[1]

    torch.library.register_autograd("stridewise_example::scale_flat", flat_backward, setup_context=keep_factor)


def scale(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """`x * w` of x (n, m) and w (m), in any layout."""
    return torch.ops.stridewise_example.scale(x, w)


@expect_layout(x="contiguous", mode="convert")
def scale_flat(x: torch.Tensor, factor: float) -> torch.Tensor:
    """`x * factor`. The kernel reads its input flat, so what is not contiguous is copied first."""
    return torch.ops.stridewise_example.scale_flat(x, factor)


def scale_sample() -> tuple[torch.Tensor, torch.Tensor]:
    """What `stridewise check op` calls `scale` with."""
    build()
    return torch.randn(6, 8, requires_grad=True), torch.randn(8, requires_grad=True)


if __name__ == "__main__":
    build()
    x, w = torch.randn(8, 6), torch.randn(8)
    print((scale(x.t(), w) - x.t() * w).abs().max().item(), (scale_flat(x.t(), 2.0) - x.t() * 2).abs().max().item())
