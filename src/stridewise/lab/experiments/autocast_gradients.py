"""Gradients of a strided weight under autocast."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import swapped

ROUNDING = 0.03
"""Of the largest gradient: what sums in another order may change where products are rounded to 8 or 11 bits."""


def run(bench: Bench, rows: int, width: int, steps: int) -> None:
    """The same float32 weight twice, row-major and column-major, and a regression trained with each."""
    low = torch.float16 if bench.on_gpu else torch.bfloat16
    x, start = bench.randn(rows, width), bench.randn(width, width) / width**0.5
    target = x @ start.roll(1, 0).t()
    weights = {
        "contiguous": nn.Parameter(start.clone()),
        "strided": nn.Parameter(swapped(start, 0, 1)),
    }

    def loss(name: str) -> Tensor:
        with torch.autocast(bench.device.place, dtype=low):
            return functional.mse_loss(functional.linear(x, weights[name]).float(), target)

    def gradient(name: str) -> Tensor:
        return torch.autograd.grad(loss(name), weights[name])[0]

    texts = (
        "the gradient of a strided float32 weight is of half precision",
        "it is not that of the contiguous weight",
        f"{steps} steps of training end in NaN or infinity",
    )
    of_half, differs, ends = texts
    compared = bench.compare(
        "Forward and backward of one layer under autocast",
        {f"{name} weight": lambda name=name: gradient(name) for name in weights},  # type: ignore[misc]
        grad=True,
        tolerance=ROUNDING,
    )
    refused = compared.refusal("strided weight")
    if refused is not None:
        for text in texts:
            bench.expect("C64", text, False, refused)
        return
    found = {name: gradient(name) for name in weights}
    scale = found["contiguous"].abs().max().item()
    gap = (found["contiguous"] - found["strided"]).abs().max().item() / scale
    bench.expect("C64", of_half, found["strided"].dtype != torch.float32, f"it is {found['strided'].dtype}")
    bench.expect("C64", differs, gap > ROUNDING, f"they differ by {gap:.2%} of the largest gradient")

    first = loss("strided").item()
    optimizer = torch.optim.SGD([weights["strided"]], lr=0.1 * width)
    for _ in range(steps):
        weights["strided"].grad = gradient("strided")
        optimizer.step()
    last = loss("strided")
    bench.expect("C64", ends, not bool(last.isfinite()), f"the loss went from {first:.2g} to {last.item():.2g}")


EXPERIMENT = Experiment(
    name="autocast-gradients",
    title="Gradients of a strided weight",
    method="One float32 weight in two layouts: its gradients under autocast are compared, and the strided one is "
    "trained.",
    claims={
        "C64": Claim(
            "3.3",
            "With a strided weight autocast computes in float32 and updates with float16 gradients, which underflow or "
            "end in NaN.",
            "The gradient of a float32 parameter is float32 under autocast, whatever its strides. Half precision can "
            "underflow inside backward, with any layout: a `GradScaler` is for that.",
        ),
    },
    run=run,
    cpu={"rows": 256, "width": 128, "steps": 50},
    quick={"steps": 10},
)
