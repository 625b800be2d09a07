"""batch_norm of inputs in several layouts."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """In training, where the library's implementation is worth most."""
    dense = bench.randn(batch, channels, side, side)
    inputs = {
        "NCHW": dense,
        "channels_last": dense.contiguous(memory_format=torch.channels_last),
        "height and width swapped": dense.transpose(2, 3).contiguous().transpose(2, 3),
        "every second column": bench.randn(batch, channels, side, 2 * side)[..., ::2].copy_(dense),
    }
    weight, bias = bench.randn(channels), bench.randn(channels)

    def norm(value: Tensor) -> Tensor:
        return F.batch_norm(value, None, None, weight, bias, training=True)

    times = bench.compare(
        "batch_norm of one input in several layouts",
        {name: partial(norm, value) for name, value in inputs.items()},
    )
    ran = {name: _working(seen.ops) for name, seen in times.records.items()}
    others = sorted(name for name in ran if ran[name] != ran["NCHW"])
    bench.expect(
        "C49",
        "other operators run for an input that is not contiguous",
        bool(others),
        f"for {', '.join(others)}" if others else f"{', '.join(sorted(ran['NCHW']))} for all",
    )
    picked = {name: _implementation(value, weight, bias) for name, value in inputs.items()}
    bench.expect(
        "C49",
        "torch picks another of its implementations",
        len(set(picked.values())) > 1,
        f"number {picked['NCHW']} for NCHW; {', '.join(f'{at} for {name}' for name, at in picked.items() if at)}"
        if len(set(picked.values())) > 1
        else f"number {picked['NCHW']} for all",
    )


def _working(ops: list[str]) -> set[str]:
    """Operators by name, but for those that copy, make room, or look."""
    names = {op.removeprefix("aten::") for op in ops}
    return {name for name in names if "batch_norm" in name}


def _implementation(value: Tensor, weight: Tensor, bias: Tensor) -> int:
    """The number that torch gives to the implementation which it picks: 0 its own, 1 cuDNN's, 2 MIOpen's."""
    found = torch._batch_norm_impl_index(value, weight, bias, None, None, True, 0.1, 1e-5, True)
    return int(found[-1])


EXPERIMENT = Experiment(
    name="batch-norm",
    title="Which batch_norm torch picks",
    method="The same normalization of four layouts: the operators that ran, and the implementation that torch says it "
    "picked.",
    claims={
        "C49": Claim(
            "3.1",
            "`BatchNorm2d` follows the same rule: input that is not contiguous does not come to cuDNN.",
            "It is copied to the memory format that its strides suggest, and comes to cuDNN. On the CPU, torch's own "
            "implementation reads any strides, but slower.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 64, "side": 56},
    cuda={"batch": 64, "channels": 128, "side": 56},
    quick={"batch": 2, "channels": 32, "side": 56},
)
