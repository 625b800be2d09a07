"""Collectives of strided tensors, called directly."""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import every_second, swapped
from stridewise.lab.refusal import Refused, tried

_CASES = (
    "all_reduce, contiguous",
    "all_reduce, transposed on both ranks",
    "all_reduce, every second column",
    "all_reduce, transposed on one rank",
    "broadcast into every second column",
    "all_gather of every second column",
)


def run(bench: Bench, side: int) -> None:
    """An expanded tensor is left out: gloo writes past its end, which ends the process."""
    wrong: dict[str, int] = {}
    for case in _CASES:
        found = [each for each in bench.ranks.call(partial(_wrong, case=case, side=side)) if each is not None]
        if found:
            wrong[case] = max(found)
    bench.count("Wrong elements that gloo gives without an error", "elements", wrong)
    if len(wrong) < len(_CASES):
        bench.count("Collectives that gloo refuses", "cases", {case: 1 for case in _CASES if case not in wrong})
    text = "NCCL takes another path for tensors that are not contiguous"
    bench.untested("C108", text, "NCCL takes GPUs; what gloo does is in the table")


def _wrong(rank: int, case: str, side: int) -> int | None:
    """On a rank: how many elements came out wrong; None if it was refused."""
    found = tried(partial(_reduced, rank, case, side))
    return None if isinstance(found, Refused) else found


def _reduced(rank: int, case: str, side: int) -> int:
    numbers = torch.arange(float(side * side)).view(side, side)
    if case.startswith("all_reduce"):
        strided = case.endswith("both ranks") or (case.endswith("one rank") and rank == 1)
        value = every_second(numbers) if "second" in case else swapped(numbers, 0, 1) if strided else numbers.clone()
        dist.all_reduce(value)
        return _different(value, 2 * numbers)
    if case.startswith("broadcast"):
        value = every_second(numbers if rank == 0 else torch.zeros_like(numbers))
        dist.broadcast(value, src=0)
        return _different(value, numbers)
    gathered = [torch.zeros_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, every_second(numbers + rank))
    return sum(_different(value, numbers + other) for other, value in enumerate(gathered))


def _different(value: Tensor, wanted: Tensor) -> int:
    return int((value != wanted).sum())


EXPERIMENT = Experiment(
    name="raw-collectives",
    title="Collectives of strided tensors",
    method="Two processes reduce, broadcast and gather tensors of known values over gloo; the elements that come out "
    "wrong are counted. An expanded tensor is not tried: gloo writes past its end.",
    claims={
        "C108": Claim(
            "5.1",
            "With tensors that are not contiguous NCCL may fall back to another path inside of `ncclAllReduce`.",
            "They don't come to it: PyTorch's ProcessGroupNCCL.cpp raises `Tensors must be contiguous`, unless they "
            "are so in the memory format that their strides suggest. gloo does not look, and reduces the wrong "
            "elements of tensors with gaps, or whose strides differ between ranks.",
        )
    },
    run=run,
    cpu={"side": 8},
)
