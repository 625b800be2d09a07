"""Copying once in front of a loop, where each call would copy, and where none does."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment

_ONCE = "copied once in front of the loop"
_SHARE = 0.9
"""Of the copies' cost: what the article says is saved."""


def run(bench: Bench, batch: int, rows: int, columns: int, times: int) -> None:
    """A layer_norm, which copies a strided input, and a sum, which reads any."""
    view = bench.randn(batch, columns, rows).transpose(1, 2)

    def loop(call: Callable[[Tensor], object], value: Tensor, often: int = times) -> None:
        for _ in range(often):
            call(value)

    def norm(value: Tensor) -> Tensor:
        return F.layer_norm(value, (columns,))

    def total(value: Tensor) -> Tensor:
        return value.sum(-1)

    found = bench.compare(
        f"{times} times layer_norm of a transposed tensor",
        {
            "copied by each call": partial(loop, norm, view),
            "`.contiguous()` in front of each call": partial(loop, lambda value: norm(value.contiguous()), view),
            _ONCE: lambda: loop(norm, view.contiguous()),
        },
    )
    bench.compare(
        f"{times} times a sum of a transposed tensor, which reads any strides",
        {"read as it is": partial(loop, total, view), _ONCE: lambda: loop(total, view.contiguous())},
    )
    made = {name: len(seen.copies) for name, seen in found.records.items()}
    for name in (name for name in made if name != _ONCE):
        said = f"{made[_ONCE]} instead of {made[name]}"
        bench.expect("C90", f"{name}: one copy in front of the loop leaves fewer", made[_ONCE] < made[name], said)
    saved = {often: _saved(bench, partial(loop, norm, view, often)) for often in (3, times)}
    for often, share in saved.items():
        text = f"a loop of {often} calls saves {_SHARE:.0%} of its copies' cost"
        bench.expect("C91", text, share >= _SHARE - 1e-9, f"{share:.0%} are saved")
    bench.count("Saved of the copies' cost", "%", {f"{often} calls": 100 * share for often, share in saved.items()})


def _saved(bench: Bench, run: Callable[[], None]) -> float:
    """The share of a loop's copies that is saved if one remains."""
    copies = len(bench.record(run).copies)
    return 1 - 1 / copies if copies else 0.0


EXPERIMENT = Experiment(
    name="copy-once",
    title="One copy in front of a loop",
    method="Loops of a call that copies its strided input each time, and of one that reads it as it is, with and "
    "without one copy in front.",
    claims={
        "C90": Claim(
            "4.2",
            "Instead of copying in each turn of a loop, copy once outside of it.",
            "So it is where a call copies in each turn, or has a slow strided kernel. One that reads the view as it is "
            "gains nothing from a copy.",
        ),
        "C91": Claim(
            "4.2",
            "That saves 90 % of the copies' cost.",
            "Of T copies one is left, so it saves (T - 1) / T: 90 % for ten turns.",
        ),
    },
    run=run,
    cpu={"batch": 16, "rows": 128, "columns": 128, "times": 10},
    cuda={"batch": 64, "rows": 512, "columns": 512, "times": 10},
    quick={"batch": 8, "rows": 128, "columns": 128, "times": 10},
)
