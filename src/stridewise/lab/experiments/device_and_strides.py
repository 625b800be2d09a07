"""A tensor made on another device, and whether strides matter to `.to()` and `torch.compile`."""

import torch

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import graphs
from stridewise.lab.refusal import tried


def run(bench: Bench, size: int) -> None:
    """Without a GPU, `meta` stands for the other device: its tensors have sizes and strides, and no elements."""
    other = bench.device.place if bench.on_gpu else "meta"
    here, there = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3], device=other)
    bench.expect(
        "C1",
        f"`torch.tensor([1, 2, 3], device='{other}')` has other strides than `torch.tensor([1, 2, 3])`",
        here.stride() != there.stride(),
        f"{here.stride()} and {there.stride()}",
    )
    bench.untested("C1", "training is 2.3x faster with 40 % less memory", "the author's program is not there")

    view = bench.randn(size, 2 * size).t()
    bench.expect_of(
        "C8",
        "`x.t().to(device)` keeps strides",
        tried(lambda: view.to("cpu" if bench.on_gpu else "meta")),
        lambda moved: moved.stride() == view.stride(),
        lambda moved: f"{view.stride()}, {moved.stride()}",
    )
    x = bench.randn(size, size)
    compiled = dict(zip(("x", "x again", "x.t()"), graphs(lambda x: x * 2 + 1, [(x,), (x,), (x.t(),)]), strict=True))
    bench.expect(
        "C8",
        "a function compiled for `x` is compiled again for `x.t()` of the same shape",
        compiled["x.t()"] > compiled["x again"],
        f"{compiled['x again']} and {compiled['x.t()']} compilations so far",
    )
    bench.count("Compilations of one function so far", "compilations", compiled)


EXPERIMENT = Experiment(
    name="device-and-strides",
    title="Devices and strides",
    method="The strides of the same tensor on two devices (`meta` is the second one if there is no GPU), those of a "
    "transposed view before and after `.to()`, and how often `torch.compile` compiles for a tensor and its transpose.",
    claims={
        "C1": Claim(
            "1",
            "Making a tensor on the GPU instead of the CPU made training 2.3 times faster and took 40 % less memory, "
            "and that comes from memory layout.",
            "Both tensors have the same layout. What making it on the GPU avoids is a copy from host to device.",
        ),
        "C8": Claim(
            "1",
            "Whoever calls `.cuda()`, `.to()` or `torch.compile` meets memory layout.",
            "`.to()` keeps the strides of a dense tensor, and compiled code is specialised for strides.",
        ),
    },
    run=run,
    cpu={"size": 64},
)
