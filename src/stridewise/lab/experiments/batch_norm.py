"""batch_norm of inputs in several layouts."""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import every_second, swapped


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """In training, where the library's implementation is worth most."""
    dense = bench.randn(batch, channels, side, side)
    inputs = {
        "NCHW": dense,
        "channels_last": dense.contiguous(memory_format=torch.channels_last),
        "height and width swapped": swapped(dense, 2, 3),
        "every second column": every_second(dense),
    }
    weight, bias = bench.randn(channels), bench.randn(channels)

    def norm(value: Tensor) -> Tensor:
        return F.batch_norm(value, None, None, weight, bias, training=True)

    times = bench.compare(
        "batch_norm of one input in several layouts",
        {name: partial(norm, value) for name, value in inputs.items()},
    )
    other, another = (
        "other operators run for an input that is not contiguous",
        "torch picks another of its implementations for some of them",
    )
    if not bench.on_gpu:
        for text in (other, another):
            bench.untested("C49", text, "no library normalizes on the CPU: torch has one implementation there")
        return
    ran = {name: times.refusal(name) or _normalizing(seen.ops) for name, seen in times.records.items()}
    bench.expect("C49", other, len(set(ran.values())) > 1, _said(ran))
    picked = {name: _implementation(value, weight, bias) for name, value in inputs.items() if name not in times.refused}
    if "" in picked.values():
        bench.untested("C49", another, "this torch does not tell which implementation it picks")
    else:
        bench.expect("C49", another, len(set(picked.values())) > 1, _said(picked))


def _said(found: Mapping[str, str]) -> str:
    """What belongs to each layout, or to all of them."""
    same = set(found.values())
    return (
        f"{same.pop()} for all" if len(same) == 1 else ", ".join(f"{what} for {name}" for name, what in found.items())
    )


def _normalizing(ops: list[str]) -> str:
    """The names of those that normalize."""
    return ", ".join(dict.fromkeys(op.removeprefix("aten::") for op in ops if "batch_norm" in op))


def _implementation(value: Tensor, weight: Tensor, bias: Tensor) -> str:
    """Whose implementation torch picks; nothing where it does not tell. Private."""
    picking = getattr(torch, "_batch_norm_impl_index", None)
    if picking is None:
        return ""
    *_, which = picking(value, weight, bias, None, None, True, 0.1, 1e-5, True)
    return {0: "torch's own", 1: "cuDNN's", 2: "MIOpen's"}.get(which, f"number {which}")


EXPERIMENT = Experiment(
    name="batch-norm",
    title="Which batch_norm torch picks",
    method="The same normalization of four layouts; on a GPU the operators that ran, and the implementation that torch "
    "says it picked.",
    claims={
        "C49": Claim(
            "3.1",
            "`BatchNorm2d` follows the same rule: input that is not contiguous does not come to cuDNN.",
            "PyTorch's Normalization.cpp copies it to the memory format that its strides suggest, and calls cuDNN. On "
            "the CPU, torch's own implementation reads any strides; those other than NCHW and channels_last are "
            "slower.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 64, "side": 56},
    cuda={"batch": 64, "channels": 128, "side": 56},
    quick={"batch": 2, "channels": 32, "side": 56},
)
