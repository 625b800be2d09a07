"""Which weights autocast casts."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import swapped
from stridewise.lab.refusal import tried

CALLS = 2
"""In one autocast region, so that a cast that is kept is seen."""


def run(bench: Bench, rows: int, width: int) -> None:
    """A linear layer and a convolution over float32 weights of several layouts; casts of leaves and of a view."""
    low = torch.float16 if bench.on_gpu else torch.bfloat16
    x, image = bench.randn(rows, width), bench.randn(2, 4, 8, 8)
    kernel = bench.randn(8, 4, 3, 3)
    linear = {
        "transposed": bench.randn(width, width).t(),
        "sliced": bench.randn(width, 2 * width)[:, ::2],
        "expanded": bench.randn(width, 1).expand(width, width),
    }
    conv = {
        "transposed": swapped(kernel, 2, 3),
        "channels_last": kernel.contiguous(memory_format=torch.channels_last),
        "sliced": bench.randn(8, 8, 3, 3)[:, ::2],
    }
    with torch.no_grad(), torch.autocast(bench.device.place, dtype=low):
        found = {
            f"linear with its weight {name}": tried(partial(functional.linear, x, each))
            for name, each in linear.items()
        }
        found |= {
            f"conv2d with its weight {name}": tried(partial(functional.conv2d, image, each))
            for name, each in conv.items()
        }
    for name, result in found.items():
        bench.expect_of(
            "C61",
            f"{name} computes in float32",
            result,
            lambda output: output.dtype == torch.float32,
            lambda output: f"its output is {output.dtype}",
        )

    parameters = {
        "contiguous": nn.Parameter(linear["transposed"].contiguous()),
        "transposed": nn.Parameter(linear["transposed"]),
        "sliced": nn.Parameter(linear["sliced"]),
    }
    casts = {f"a {name} parameter": _casts(bench, x, parameter, low) for name, parameter in parameters.items()}
    leaves = dict(casts)
    frozen = nn.Parameter(parameters["contiguous"].detach(), requires_grad=False)
    casts["a frozen parameter"] = _casts(bench, x, frozen, low)
    casts["a view of a parameter"] = _casts(bench, x, parameters["contiguous"].t(), low)
    bench.count(f"Casts of one weight by {CALLS} linear layers in one autocast region", "casts", casts)

    there = hasattr(torch._C, "_autocast_to_fp16")
    bench.expect(
        "C62",
        "torch has `torch._C._autocast_to_fp16`",
        there,
        f"{'it is' if there else 'no such name'} in torch {torch.__version__}",
    )
    bench.expect(
        "C62",
        "parameters that are contiguous and those that are not are cast another number of times",
        len(set(leaves.values())) > 1,
        ", ".join(f"{name}: {times}" for name, times in leaves.items()),
    )


def _casts(bench: Bench, x: Tensor, weight: Tensor, low: torch.dtype) -> int:
    """How often a weight is cast."""
    ready = x.to(low)

    def region() -> None:
        with torch.enable_grad(), torch.autocast(bench.device.place, dtype=low):
            for _ in range(CALLS):
                tried(lambda: functional.linear(ready, weight))

    return bench.record(region).ops.count("aten::_to_copy")


EXPERIMENT = Experiment(
    name="autocast-weights",
    title="autocast on strided weights",
    method="The type of the output of linear and conv2d under autocast, for weights of several layouts; and how often "
    "a weight is cast, as the recorder sees it.",
    claims={
        "C61": Claim(
            "3.3",
            "autocast leaves weights that are not contiguous in float32, and says nothing.",
            "autocast casts a weight of any strides: it never asks whether one is contiguous.",
        ),
        "C62": Claim(
            "3.3",
            "At the core of autocast, `torch._C._autocast_to_fp16` asks for `weight.is_contiguous()`.",
            "No such function exists. The cast of a float32 leaf that requires a gradient is kept for the rest of the "
            "region, that of a frozen one or of a view is made anew at each use; strides decide nothing.",
        ),
    },
    run=run,
    cpu={"rows": 16, "width": 64},
)
