"""The loop that makes all parameters contiguous: what it mends and what it breaks."""

from functools import partial

import torch
from torch import nn

from stridewise.lab.bench import Bench
from stridewise.lab.ddp import said_of_strides
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import count


def run(bench: Bench, width: int) -> None:
    """On channels_last weights, on parameters that share a flat buffer, and in front of and behind DDP's wrapper."""
    place = bench.device.place
    net = nn.Conv2d(width, width, 3).to(place).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = net.weight.is_contiguous(memory_format=torch.channels_last)
    loop(net)
    after = net.weight.is_contiguous(memory_format=torch.channels_last)
    said = f"channels_last {before} before, {after} after"
    bench.expect("C109", "channels_last weights keep their format", before and after, said)

    flat = bench.randn(width * width)
    shared = nn.Linear(width, width, bias=False).to(place)
    shared.weight.data = flat.view(width, width).t()
    loop(shared)
    flat.zero_()
    shares = not shared.weight.detach().any().item()
    bench.expect(
        "C109", "a parameter stays in the flat buffer that it shares", shares, "it does" if shares else "it left"
    )

    warned = {
        when: max(bench.ranks.call(partial(_warnings, when=when, width=width)))
        for when in ("never", "in front of DDP", "behind DDP")
    }
    bench.count("Warnings of DDP about strides, by where the loop ran", "warnings", warned)
    text = "DDP warns about strides, unless the loop ran in front of it"
    said = f"{count(warned['never'], 'warning')} without the loop, {warned['in front of DDP']} with it"
    bench.expect("C109", text, warned["never"] > warned["in front of DDP"], said)


def loop(model: nn.Module) -> None:
    """The article's."""
    for value in model.parameters():
        if not value.is_contiguous():
            value.data = value.data.contiguous()
            if value.grad is not None:
                value.grad = value.grad.contiguous()


def _warnings(rank: int, when: str, width: int) -> int:
    """On a rank: how often DDP warns about strides in a step."""
    torch.manual_seed(0)
    model = nn.Conv2d(width, width, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if when == "in front of DDP":
        loop(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    if when == "behind DDP":
        loop(model)
    return len(said_of_strides(lambda: wrapped(torch.full((2, width, 8, 8), float(rank))).sum().backward()))


EXPERIMENT = Experiment(
    name="ddp-param-data-loop",
    title="Making all parameters contiguous",
    method="The article's loop over `param.data`, on channels_last weights, on a parameter in a flat buffer, and with "
    "two processes that train over gloo.",
    claims={
        "C109": Claim(
            "5.1",
            "Before DDP, set `param.data = param.data.contiguous()` for all parameters.",
            "There is nothing to mend, and it undoes channels_last, takes parameters out of buffers that they share, "
            "and makes the very warning about strides if it runs behind the wrapper. Choose the layout before the "
            "wrapper and the optimizer, and leave it.",
        )
    },
    run=run,
    cpu={"width": 16},
)
