"""conv2d of inputs and weights in several layouts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import swapped
from stridewise.lab.recorded import Recorded

_GENERIC = "slow_conv2d"
"""In the name of ATen's own convolution, whatever the device."""


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """The same values every time; only the layouts of input and weight differ."""
    dtype = torch.bfloat16 if bench.on_gpu else torch.float32
    dense = bench.randn(batch, channels, side, side, dtype=dtype)
    weight = bench.randn(channels, channels, 3, 3, dtype=dtype)
    view = swapped(dense, 2, 3)
    last, last_weight = (value.contiguous(memory_format=torch.channels_last) for value in (dense, weight))

    def conv(value: Tensor, kernel: Tensor) -> Callable[[], Tensor]:
        return lambda: F.conv2d(value, kernel, padding=1)

    times = bench.compare(
        "conv2d of one input in several layouts",
        {
            "NCHW": conv(dense, weight),
            "height and width swapped": conv(view, weight),
            "swapped, `.contiguous()` in front": lambda: F.conv2d(view.contiguous(), weight, padding=1),
            "channels_last": conv(last, last_weight),
            "channels_last, NCHW weight": conv(last, weight),
            "NCHW, channels_last weight": conv(dense, last_weight),
            "channels_last, `.contiguous()` in front": lambda: F.conv2d(last.contiguous(), weight, padding=1),
        },
    )
    pool = bench.compare(
        "max_pool2d of two layouts",
        {"NCHW": lambda: F.max_pool2d(dense, 2), "channels_last": lambda: F.max_pool2d(last, 2)},
    )

    if bench.on_gpu:
        bench.predict("C47", times.slower("height and width swapped", than="NCHW", by=5))
        bench.predict("C48", times.slower("height and width swapped", than="NCHW", by=6))
    else:
        bench.untested("C47", "conv2d is 5 to 8 times slower", "the figure is of a GPU; the CPU's are in the table")
        bench.untested("C48", "0.12 ms become 0.78", "the figures are of a GPU")
    usual, generic = (_generic(times.records[name]) for name in ("NCHW", "height and width swapped"))
    text = "a kernel of `slow_conv2d` runs for the swapped input"
    if usual:
        bench.untested("C48", text, "NCHW runs it here too: torch has no library for convolutions, or it is off")
    else:
        bench.expect("C48", text, bool(generic), ", ".join(generic) or "none ran")
    for found in (times, pool):
        bench.predict("C52", found.slower("channels_last", than="NCHW"))
    bench.predict("C88", times.faster("swapped, `.contiguous()` in front", than="height and width swapped"))
    bench.predict("C88", times.faster("channels_last, `.contiguous()` in front", than="channels_last"))


def _generic(seen: Recorded) -> list[str]:
    """What ran of ATen's own convolution."""
    return [name for name in (*seen.ops, *seen.kernels) if _GENERIC in name]


EXPERIMENT = Experiment(
    name="conv2d-layouts",
    title="conv2d of NCHW, channels_last, and strided inputs",
    method="One convolution of equal values that lie in memory in several ways, on a GPU in bfloat16. Copies are those "
    "that torch makes; what oneDNN or cuDNN reorders inside is in the time alone.",
    claims={
        "C47": Claim(
            "3.1",
            "A convolution is 5 to 8 times slower when one of its operands is not contiguous.",
            "It costs one pass over the operand, which is copied in front of the same kernel: on a CPU some 10 to 25 % "
            "of a convolution.",
        ),
        "C48": Claim(
            "3.1",
            "In ResNet-50's first layer, contiguous input takes 0.12 ms; any other runs `slow_conv2d`, 0.78 ms and "
            "three times the launches.",
            "`slow_conv2d` is what runs without a library for convolutions; strides never lead to it.",
        ),
        "C52": Claim(
            "3.1",
            "Contiguity is the main switch of cuDNN's speed.",
            "The memory format is. channels_last is not contiguous by `is_contiguous()`, and is often the fastest; "
            "`.contiguous()` turns it off.",
        ),
        "C88": copy_in_front(
            "A convolution copies once by itself when it has to, so a copy in front gains nothing, and undoes "
            "channels_last.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 64, "side": 56},
    cuda={"batch": 64, "channels": 128, "side": 56},
    quick={"batch": 2, "channels": 32, "side": 56},
)
