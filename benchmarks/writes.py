"""What `guard_writes` costs: a training step with and without it, and beside a dispatch mode that does nothing.

`python benchmarks/writes.py [--repeat N]`. The three take turns, so that what else the machine does falls on all;
figures are medians of paired ratios to the bare step, of CPU time on one thread. Absolute times are of this machine
alone.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from stridewise.checks.writes import guard_writes


class Nothing(TorchDispatchMode):
    """The peer: the least that any such mode costs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "bare": nullcontext,
    "an empty mode": Nothing,
    "guard_writes": guard_writes,
}


def step_of(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tiny() -> None:
    x = torch.ones(4)
    for _ in range(500):
        x.add_(1)


def steps() -> dict[str, Callable[[], None]]:
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    images = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(True), nn.Conv2d(32, 64, 3), nn.ReLU(True))
    return {
        "a transformer, 2 layers": step_of(encoder, torch.randn(8, 128, 256)),
        "convolutions": step_of(images, torch.randn(8, 3, 64, 64)),
        "500 writes to 4 elements": tiny,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    for name, step in steps().items():
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        step()
        for _ in range(repeat):
            for way, mode in WAYS.items():
                with mode():
                    begin = time.process_time()
                    step()
                    took[way].append(time.process_time() - begin)
        ratios = {way: median(a / b for a, b in zip(times, took["bare"], strict=True)) for way, times in took.items()}
        shown = ", ".join(f"{way} {ratio:.2f}x" for way, ratio in ratios.items() if way != "bare")
        print(f"{name}: {median(took['bare']) * 1e3:.1f} ms bare; {shown}", flush=True)


if __name__ == "__main__":
    main()
