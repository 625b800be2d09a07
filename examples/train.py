"""A training script with a fault in its layout: `stridewise run examples/train.py --steps 8` finds it.

It knows nothing of stridewise. Sequences arrive as (batch, channels, time), as audio does, and are permuted once; the
residual connections carry the permuted order through every layer.
"""

import argparse

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """A feed-forward layer behind a layer norm, beside a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.feed_forward(self.norm(x))


class Tagger(nn.Module):
    """(batch, channels, time) to a class per moment: (batch, time, classes)."""

    def __init__(self, width: int = 128, depth: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, sound: Tensor) -> Tensor:
        x = sound.permute(0, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        sound, labels = torch.randn(8, 128, 400), torch.randint(10, (8, 400))
        loss = nn.functional.cross_entropy(model(sound).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
