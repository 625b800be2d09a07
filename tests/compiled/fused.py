"""Programs whose kernels compute something and copy something else. Sites are looked for in this file, by line."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HEADS, WIDTH, WINDOW = 3, 48, 4


class Attention(nn.Module):
    """Attention in each window."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        windows, count, _ = x.shape
        q, k, v = self.qkv(x).reshape(windows, count, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q * 0.25) @ k.transpose(-2, -1)
        weights = scores.softmax(-1)
        mixed = weights @ v
        out = mixed.transpose(1, 2).reshape(windows, count, WIDTH)
        return self.project(out)


class Block(nn.Module):
    """Windows of an image, which may be moved. The copy of `v` comes into the kernel of the softmax."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        images, height, width, _ = x.shape
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.norm(x)
        y = y.view(images, height // WINDOW, WINDOW, width // WINDOW, WINDOW, WIDTH)
        y = self.attention(y.transpose(2, 3).reshape(-1, WINDOW * WINDOW, WIDTH))
        y = y.view(images, height // WINDOW, width // WINDOW, WINDOW, WINDOW, WIDTH)
        y = y.transpose(2, 3).reshape(images, height, width, WIDTH)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.mlp(x)


def several_copies(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = x.transpose(1, 2).contiguous()
    second = x.transpose(0, 1).contiguous()
    return second, torch.relu(x), first


def copy_and_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = (x * 2).transpose(0, 1).contiguous()
    return total, y.transpose(0, 1)[:, ::2].reshape(-1, 8) @ torch.tanh(y[:8, :8])


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], bool]]:
    """Each with its arguments, and whether it is trained, with sizes that are dynamic."""
    return {
        "windows": (nn.Sequential(Block(0), Block(WINDOW // 2)), (torch.randn(2, 16, 16, WIDTH),), True),
        "dynamic": (Attention(), (torch.randn(5, 16, WIDTH),), True),
        "copies": (several_copies, (torch.randn(16, 16, 16),), False),
        "product": (copy_and_product, (torch.randn(32, 32), torch.randn(32, 32)), False),
    }
