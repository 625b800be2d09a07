"""Whether operators give the same bits whatever the strides."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried


def run(bench: Bench, size: int) -> None:
    """Each operator of a transposed view, and of a copy of it."""
    matrix = bench.randn(size, size).t()
    image = bench.randn(4, 16, 32, 32).transpose(2, 3)
    weight = bench.randn(16, 16, 3, 3)
    cases: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
        "softmax(x, -1)": (matrix, lambda x: torch.softmax(x, -1)),
        "x @ x": (matrix, lambda x: x @ x),
        "conv2d(x, w)": (image, lambda x: F.conv2d(x, weight)),
        "x.sum(-1)": (matrix, lambda x: x.sum(-1)),
        "x.sum()": (matrix, lambda x: x.sum()),
    }
    shares: dict[str, float] = {}
    for name, (view, operator) in cases.items():
        text = f"`{name}` of a view and of its copy are the same bits"
        found, expected = tried(partial(operator, view)), operator(view.contiguous())
        if isinstance(found, Refused):
            bench.expect("C4", text, False, f"of the view it {found.said}")
            continue
        differ = int((found != expected).sum())
        most = (found - expected).abs().max().item()
        shares[name] = 100 * differ / found.numel()
        bench.expect(
            "C4",
            text,
            differ == 0,
            f"{differ:,} of {found.numel():,} values differ, by at most {most:.2g}" if differ else "the same bits",
        )
    bench.count("Values that differ between a view and its copy", "%", shares)


EXPERIMENT = Experiment(
    name="reductions-order",
    title="Same values, same bits?",
    method="Operators of a transposed view and of its contiguous copy, compared bit by bit.",
    claims={
        "C4": Claim(
            "1",
            "Layout changes no result of any computation.",
            "The mathematics are the same, the bits need not be: a reduction goes through memory in its order, and "
            "rounds in that order.",
        )
    },
    run=run,
    cpu={"size": 512},
    quick={"size": 256},
)
