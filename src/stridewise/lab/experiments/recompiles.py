"""What new strides cost under torch.compile."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stridewise.compiled.capture import fresh
from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def chain(x: Tensor, y: Tensor) -> Tensor:
    """Compiled for the strides that it is called with."""
    return torch.relu(x * 2 + y) + 1


def run(bench: Bench, side: int) -> None:
    """One function called with operands of one layout, and of three."""
    y, dense = bench.randn(side, side), bench.randn(side, side)
    same = [(dense, y), (y, dense), (dense, y)]
    other = [(dense, y), (dense.t(), y), (bench.randn(side, 2 * side)[:, ::2], y)]
    numbers = {
        "the same strides": _compilations(same),
        "other strides each time": _compilations(other),
        "the same strides, dynamic=True": _compilations(same, dynamic=True),
        "other strides each time, dynamic=True": _compilations(other, dynamic=True),
    }
    bench.count("Compilations for three calls", "compilations", numbers)
    said = ", ".join(f"{name}: {number}" for name, number in numbers.items())
    why = f"the program is the author's and is not given; compilations for three calls here are {said}"
    bench.untested("C134", "strided tensors removed by hook first, then compiled: three times as good", why)


def _compilations(calls: list[tuple[Tensor, Tensor]], *, dynamic: bool | None = None) -> int:
    """How many graphs are handed to be compiled."""
    graphs = 0

    def backend(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return module.forward

    compiled = torch.compile(fresh(chain), backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for x, y in calls:
            compiled(x, y)
    return graphs


EXPERIMENT = Experiment(
    name="recompiles",
    title="Strides that change",
    method="Graphs that torch.compile hands to its backend, here one that only counts, for three calls whose operands "
    "have the same strides and for three whose operands have not.",
    claims={
        "C134": Claim(
            "6.3",
            "To remove every strided tensor with the hook before compiling makes compiling three times as good.",
            "No measurement is given. What pays is strides that stay the same from step to step: each new pattern of "
            "an input is one more compilation, with dynamic shapes too.",
        ),
    },
    run=run,
    cpu={"side": 32},
)
