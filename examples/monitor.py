"""Keep an eye on layout while a model trains: one step of a thousand is recorded, and its cost told."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import stridewise
from stridewise.errors import BudgetExceeded

model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model = model.to(memory_format=torch.channels_last)  # and its input is not
optimizer = torch.optim.AdamW(model.parameters())
images = [torch.randn(8, 3, 32, 32) for _ in range(30)]


def train_step(batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def tell(figures: dict[str, float], step: int) -> None:
    """In the place of a SummaryWriter, `wandb.log` or a logger."""
    print(f"step {step}: {figures['stridewise/copies']:.0f} copies, {figures['stridewise/bytes_moved']:,.0f} bytes")


with tempfile.TemporaryDirectory() as folder:
    # Every 10 here, since 30 steps are few; None takes the limit on what it may cost away.
    with stridewise.monitor(every=10, warmup=5, max_overhead=None, loggers=tell, folder=folder) as watch:
        for batch in images:
            train_step(batch)
            watch.step()
    print("written:", *sorted(path.name for path in Path(folder).iterdir()), sep="\n  ")

print(watch.report)

# Or around the loader, which says itself where a step ends; over budget the loop ends.
try:
    for batch in stridewise.monitor(images, warmup=5, budget="copies=0", on_excess="raise"):
        train_step(batch)
except BudgetExceeded as error:
    print(f"\n{error}")
