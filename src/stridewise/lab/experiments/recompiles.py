"""What new strides cost under torch.compile."""

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import graphs


def chain(x: Tensor, y: Tensor) -> Tensor:
    """Compiled for the strides that it is called with."""
    return torch.relu(x * 2 + y) + 1


def run(bench: Bench, side: int) -> None:
    """One function called with operands of one layout, and of three."""
    y, dense = bench.randn(side, side), bench.randn(side, side)
    same = [(dense, y), (y, dense), (dense, y)]
    other = [(dense, y), (dense.t(), y), (bench.randn(side, 2 * side)[:, ::2], y)]
    numbers = {
        "the same strides": graphs(chain, same)[-1],
        "other strides each time": graphs(chain, other)[-1],
        "the same strides, dynamic=True": graphs(chain, same, dynamic=True)[-1],
        "other strides each time, dynamic=True": graphs(chain, other, dynamic=True)[-1],
    }
    bench.count("Compilations for three calls", "compilations", numbers)
    text = "compiled after the hook found all strided tensors, a program gains three times as much"
    bench.untested("C134", text, "the author's program is not there, nor what he measured")


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
