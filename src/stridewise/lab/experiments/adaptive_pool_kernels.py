"""What runs for adaptive_avg_pool2d."""

import torch
import torch.nn.functional as F

from stridewise.lab.bench import Bench
from stridewise.lab.cudnn import operators
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import swapped


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """To one value a channel, as classifiers do, and to a larger grid."""
    dense = bench.randn(batch, channels, side, side)
    view = swapped(dense, 2, 3)
    last = dense.contiguous(memory_format=torch.channels_last)
    found = bench.compare(
        "adaptive_avg_pool2d to a 2 by 2 grid",
        {
            "NCHW": lambda: F.adaptive_avg_pool2d(dense, 2),
            "channels_last": lambda: F.adaptive_avg_pool2d(last, 2),
            "height and width swapped": lambda: F.adaptive_avg_pool2d(view, 2),
        },
    )
    single = bench.record(lambda: F.adaptive_avg_pool2d(dense, 1))
    cudnn = operators()
    pooling = [name for name in cudnn if "pool" in name]
    bench.count(
        "Torch's operators for cuDNN",
        "operators",
        {"for pooling": len(pooling), "for the rest": len(cudnn) - len(pooling)},
    )
    if cudnn:
        said = ", ".join(pooling) or f"none of {len(cudnn)}"
        bench.expect("C50", "torch has an operator for cuDNN's pooling", bool(pooling), said)
    else:
        bench.untested("C50", "torch has an operator for cuDNN's pooling", "this torch does not list its operators")
    text = "pooling runs something of cuDNN"
    said = f"to one value {_pooling(single.ops)}; to a grid {_pooling(found.records['NCHW'].ops)}"
    if not bench.on_gpu:
        bench.untested("C50", text, f"cuDNN takes a GPU; here run, {said}")
        return
    records = [*found.records.values(), single]
    ran = sorted({name for seen in records for name in (*seen.ops, *seen.kernels)})
    bench.expect("C50", text, any("cudnn" in name.lower() for name in ran), said)


def _pooling(ops: list[str]) -> str:
    return ", ".join(dict.fromkeys(op for op in ops if "pool" in op or op == "aten::mean"))


EXPERIMENT = Experiment(
    name="adaptive-pool-kernels",
    title="What runs for adaptive_avg_pool2d",
    method="Torch's list of operators, which holds those of every device, is searched for cuDNN's pooling; and what "
    "pooling ran is recorded.",
    claims={
        "C50": Claim(
            "3.1",
            "`AdaptiveAvgPool2d` uses cuDNN's pooling, and follows the same rule.",
            "It is torch's own kernel, and a plain mean where the output is one value a channel; cuDNN has no part.",
        ),
    },
    run=run,
    cpu={"batch": 32, "channels": 256, "side": 8},
    quick={"batch": 8, "channels": 128, "side": 8},
)
