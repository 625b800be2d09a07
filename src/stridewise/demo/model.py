"""An image encoder as many are written: patches from a convolution, then a few transformer blocks."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a layer norm and beside a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attention(self, x: Tensor) -> Tensor:
        """Self-attention over (batch, tokens, width)."""
        batch, tokens, width = x.shape
        heads = [part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        attended: Tensor = self.projection(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return attended

    def forward(self, x: Tensor) -> Tensor:
        """From and to (batch, tokens, width)."""
        x = x + self.attention(self.attention_norm(x))
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x


class Encoder(nn.Module):
    """Images (batch, 3, height, width) to class scores (batch, classes)."""

    def __init__(self, width: int = 128, heads: int = 4, depth: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=8, stride=8)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Patches are tokens: (batch, width, rows, columns) becomes (batch, tokens, width)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x).mean(dim=1))
        return scores


def train(steps: int) -> None:
    """Run some steps of training on random images."""
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(8, 3, 128, 128), torch.randint(10, (8,))
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
