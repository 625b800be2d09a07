"""Which implementation of a convolution torch picks, over the layouts of its operands."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import every_second, swapped
from stridewise.lab.refusal import tried

_GENERIC = "Slow"
"""Begins the names of ATen's own convolutions: `Slow2d`, `SlowDilated2d`, …"""
_GENERIC_OP = "slow_conv"
"""In the names of their operators and kernels."""
_NO_LIBRARY = "contiguous operands run a generic one here too: torch has no library for convolutions, or it is off"


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """Every layout of the input with every layout of weight and bias."""
    inputs = _layouts(bench.randn(batch, channels, side, side))
    weights = _layouts(bench.randn(channels, channels, 4, 4))
    bench.untested("C45", "`cudnnConvolutionForward` is what is called", "no trace names the library's functions")
    usual = _generic(bench, lambda: F.conv2d(inputs["contiguous"], weights["contiguous"]))
    pairs = list(product(inputs.values(), weights.values()))
    more = _generic(bench, lambda: [tried(partial(F.conv2d, value, weight)) for value, weight in pairs]) - usual
    text = "operators of the generic convolution run for strided operands alone"
    if usual and not _has_library(bench):
        bench.untested("C46", text, _NO_LIBRARY)
    else:
        bench.expect("C46", text, bool(more), ", ".join(sorted(more)) or "none ran")
    _picked(bench, inputs, weights)


def _picked(bench: Bench, inputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """What torch says that it would run for every combination."""
    bias = bench.randn(len(weights["contiguous"]))
    biases = {"contiguous": bias, "every second": bias.repeat_interleave(2)[::2]}
    another = "another implementation is picked for some strided operand"
    pick = _picker()
    if pick is None:
        bench.untested("C44", another, "this torch does not tell which implementation it would pick")
        return
    picked = {
        names: pick(inputs[names[0]], weights[names[1]], biases[names[2]]) for names in product(inputs, weights, biases)
    }
    dense = picked["contiguous", "contiguous", "contiguous"]
    others = Counter(name for names, name in picked.items() if set(names) != {"contiguous"})
    bench.count(
        "Implementation picked, over layouts of input, weight and bias", "combinations", Counter(picked.values())
    )
    said = f"{dense} for contiguous operands; for {others.total()} others {_said(others)}"
    library, alone = "a library's convolution is picked if all are contiguous", "and only then"
    generic = "a generic implementation is picked as soon as one is not"
    usual = dense.startswith(_GENERIC)
    if usual and not _has_library(bench):
        for claim, text in (("C44", another), ("C45", library), ("C45", alone), ("C46", generic)):
            bench.untested(claim, text, _NO_LIBRARY)
        return
    bench.expect("C44", another, set(others) != {dense}, said)
    bench.expect("C45", library, not usual, dense)
    bench.expect("C45", alone, dense not in others, said)
    bench.expect("C46", generic, not usual and all(name.startswith(_GENERIC) for name in others), said)


def _has_library(bench: Bench) -> bool:
    """Whether torch has one for convolutions that is not switched off."""
    library = torch.backends.cudnn if bench.on_gpu else torch.backends.mkldnn
    return library.is_available() and bool(library.enabled)


def _generic(bench: Bench, run: Callable[[], object]) -> set[str]:
    """Operators and kernels of ATen's own convolutions that it runs."""
    seen = bench.record(run)
    return {name for name in (*seen.ops, *seen.kernels) if _GENERIC_OP in name}


def _layouts(dense: Tensor) -> dict[str, Tensor]:
    """The values of one dense 4-D tensor, in several layouts."""
    batch, channels, rows, columns = dense.shape
    more = dense.new_empty(batch, 2 * channels, rows, columns)
    return {
        "contiguous": dense,
        "channels_last": dense.contiguous(memory_format=torch.channels_last),
        "height and width swapped": swapped(dense, 2, 3),
        "batch and channels swapped": swapped(dense, 0, 1),
        "every second column": every_second(dense),
        "half of the channels": more[:, :channels].copy_(dense),
        "expanded": dense[:1].expand(batch, -1, -1, -1),
    }


def _picker() -> Callable[[Tensor, Tensor, Tensor], str] | None:
    """What names the implementation for these operands; None where torch lacks it. Private; tried on 2.13."""
    select: Any = getattr(torch._C, "_select_conv_backend", None)
    if select is None:
        return None
    return lambda value, weight, bias: str(
        select(value, weight, bias, (1, 1), (0, 0), (1, 1), False, (0, 0), 1).name  # stride, padding, dilation, …
    )


def _said(found: Counter[str]) -> str:
    return ", ".join(f"{name} ({times})" for name, times in found.most_common())


EXPERIMENT = Experiment(
    name="conv-backend",
    title="Which convolution torch picks",
    method="Torch is asked which implementation it would pick, for every combination of seven layouts of the input, "
    "seven of the weight and two of the bias; and the recorder says which operators ran. On the CPU the library is "
    "oneDNN.",
    claims={
        "C44": Claim(
            "3.1",
            "`Conv2d` looks whether input, weight and bias are contiguous to decide whether cuDNN may be used.",
            "The device, the dtype and the sizes decide. The memory format is chosen after that, and operands in "
            "another one are copied.",
        ),
        "C45": Claim(
            "3.1",
            "If all of them are contiguous, and only then, it calls cuDNN's `cudnnConvolutionForward`.",
            "Any strides come to cuDNN, on the CPU to oneDNN. Since version 8, cuDNN is called by its graph interface.",
        ),
        "C46": Claim(
            "3.1",
            "If one of them is not, `slow_conv2d` runs, a generic kernel.",
            "An operand in the wrong format is copied once, and the same convolution runs.",
        ),
    },
    run=run,
    cpu={"batch": 4, "channels": 16, "side": 32},
)
