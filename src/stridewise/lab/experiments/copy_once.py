"""Copying once in front of a loop, where each call would copy, and where none does."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.compared import Compared
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.lab import Prediction

_EACH = "`.contiguous()` in front of each call"
_ONCE = "copied once in front of the loop"
_DENSE = "contiguous"
_FEW = 2
"""Calls of a short loop."""
_LEAST = 0.7
"""Of the copies' time: what passes for 90 %, as it is nearer to that than to the half that two calls save."""


def run(bench: Bench, batch: int, rows: int, columns: int, times: int) -> None:
    """A layer_norm, which copies a strided input, and a sum, which reads any strides."""
    view = bench.randn(batch, columns, rows).transpose(1, 2)

    def loop(call: Callable[[Tensor], object], value: Tensor, often: int = times) -> None:
        for _ in range(often):
            call(value)

    def norm(value: Tensor) -> Tensor:
        return F.layer_norm(value, (columns,))

    def total(value: Tensor) -> Tensor:
        return value.sum(-1)

    dense = view.contiguous()

    def arms(often: int) -> dict[str, Callable[[], None]]:
        return {
            _EACH: partial(loop, lambda value: norm(value.contiguous()), view, often),
            _ONCE: lambda: loop(norm, view.contiguous(), often),
            _DENSE: partial(loop, norm, dense, often),
        }

    alone = "copied by each call"
    title = "{} times layer_norm of a transposed tensor"
    found = bench.compare(title.format(times), {alone: partial(loop, norm, view), **arms(times)})
    bench.predict("C90", found.copies(alone, least=times))
    for name in (alone, _EACH):
        bench.predict("C90", found.faster(_ONCE, than=name))
    few = bench.compare(title.format(_FEW), arms(_FEW))
    for often, compared in ((_FEW, few), (times, found)):
        bench.predict("C91", _saved(compared, often))
    bench.compare(
        f"{times} times a sum of a transposed tensor, which reads any strides",
        {"read as it is": partial(loop, total, view), _ONCE: lambda: loop(total, view.contiguous())},
    )


def _saved(times: Compared, often: int) -> Prediction:
    """Of the time that copies in each turn take, the share that one copy in front saves; by the ratios' intervals."""
    text = f"in a loop of {often} calls, one copy in front saves some 90 % of the copies' time, {_LEAST:.0%} at least"
    refused = next(filter(None, map(times.refusal, (_EACH, _ONCE, _DENSE))), None)
    if refused is not None:
        return Prediction(text, None, refused)
    once, dense = times.ratio(_ONCE, over=_EACH), times.ratio(_DENSE, over=_EACH)
    if dense.high >= 1:
        return Prediction(text, None, "copies take no time that can be told here", unclear=True)
    low, high = (1 - once.high) / (1 - dense.low), (1 - once.low) / (1 - dense.high)
    said = f"it saves {(1 - once.middle) / (1 - dense.middle):.0%} ({low:.0%} to {high:.0%})"
    if low >= _LEAST or high < _LEAST:
        return Prediction(text, low >= _LEAST, said)
    return Prediction(text, None, f"{said}, which leaves it open", unclear=True)


EXPERIMENT = Experiment(
    name="copy-once",
    title="One copy in front of a loop",
    method="Loops of a call that copies its strided input each time, and of one that reads it as it is, with and "
    "without one copy in front. What copies take is a loop's time over that of the same loop with a contiguous input.",
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
)
