"""Programs that are compiled in tests. Sites are looked for in this file: what a line does stands on one line."""

import torch
import torch._inductor.config
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

EXACT = hasattr(torch._inductor.config.trace, "provenance_tracking_level")
"""Whether this torch logs where a kernel's nodes come from: else sites are whole lines."""


class ConvRelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv(image))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As the article has it: every tensor contiguous around attention."""
    q = q.transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    v = v.transpose(1, 2).contiguous()
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous()


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return scaled_dot_product_attention(q, k, v).transpose(1, 2)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def chain(a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(a * 2 + b) + 1


def asks(x: Tensor) -> Tensor:
    y = x * 2
    print("contiguous:", y.is_contiguous())
    return y.sum()


def breaks(x: Tensor) -> Tensor:
    y = x * 2
    print("no matter")
    return y.sum()


def permuted(x: Tensor, weight: Tensor) -> Tensor:
    return x.permute(0, 2, 1).reshape(-1, 32) @ weight


def needed(x: Tensor) -> Tensor:
    return torch.relu(x.t().contiguous().view(-1))


class NormThenView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).view(-1)


class NormThenReshape(NormThenView):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).reshape(-1)


def images(*, channels_last: bool = False) -> Tensor:
    found = torch.randn(2, 32, 16, 16)
    return found.to(memory_format=torch.channels_last) if channels_last else found


def heads() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 64, 8, 32), torch.randn(2, 64, 8, 32), torch.randn(2, 64, 8, 32)
