"""Buffers that are not contiguous."""

import io

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import tried
from stridewise.results.numbers import byte_count


class _Masked(nn.Module):
    """The article's module."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return self.mask * x


def run(bench: Bench, size: int) -> None:
    """A transposed and an expanded mask; on the CPU so small that one thread does all."""
    turned = (torch.rand(size, size) > 0.5).float().t().to(bench.device.place)
    strided, dense = _Masked(turned), _Masked(turned.contiguous())
    for how, module in (("registered", strided), ("saved and loaded", _reloaded(strided))):
        seen = f"strides {module.mask.stride()}"
        bench.expect("C135", f"a transposed buffer is strided when {how}", not module.mask.is_contiguous(), seen)

    x = bench.randn(size, size)
    times = bench.compare(
        "A masked tensor, flattened",
        {
            "(mask * x).flatten(), mask contiguous": lambda: dense(x).flatten(),
            "(mask * x).flatten(), mask transposed": lambda: strided(x).flatten(),
        },
    )
    same = times.agree("(mask * x).flatten(), mask transposed", bits=True)
    bench.expect(
        "C136", "a module with a strided buffer computes something else", same.came_true is False, same.measured
    )
    bench.predict("C136", times.copies("(mask * x).flatten(), mask transposed"))
    wide = bench.randn(1, size).expand(size, size)
    before, after = (each.untyped_storage().nbytes() for each in (wide, wide.contiguous()))
    text = "a mask that was expanded takes no more memory when it is made contiguous"
    bench.expect("C136", text, after <= before, f"{byte_count(before)} before, {byte_count(after)} after")

    results = {"mask * x": tried(lambda: strided(x)), "x * mask": tried(lambda: x * turned)}
    for name, result in results.items():
        bench.expect_of(
            "C137",
            f"`{name}` is strided",
            result,
            lambda product: not product.is_contiguous(),
            lambda product: f"strides {product.stride()}",
        )
    bench.expect("C137", "`x` itself is strided then", not x.is_contiguous(), f"strides {x.stride()}")


def _reloaded(module: _Masked) -> _Masked:
    """The module as a file brings it back, in a module whose buffer has these strides."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    fresh = _Masked(state["mask"])
    fresh.load_state_dict(state)
    return fresh


EXPERIMENT = Experiment(
    name="register-buffer",
    title="Strided buffers",
    method="A transposed mask as a buffer, through a file and back; the strides of its product with a contiguous "
    "tensor, and what flattening that copies; the memory of an expanded mask.",
    claims={
        "C135": Claim(
            "6.4",
            "`register_buffer` does not make a tensor contiguous.",
            "A buffer keeps its strides, through a file too.",
        ),
        "C136": Claim(
            "6.4",
            "Buffers must be contiguous when they are registered.",
            "Either works. A mask that was expanded is better left so; one that was transposed hands its layout on to "
            "the product, and whatever needs that in order copies it.",
        ),
        "C137": Claim(
            "6.4",
            "A strided mask in `mask * x` makes `x` strided.",
            "Not `x` but the result, and that only because the mask comes first: where layouts differ, the first "
            "operand's order wins.",
        ),
    },
    run=run,
    cpu={"size": 180},
    cuda={"size": 8192},
    quick={"size": 180},
)
