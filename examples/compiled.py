"""See what torch.compile makes of a layout: copies that nobody asked for, and copies that somebody did."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import stridewise


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Often written so, to be safe: every tensor contiguous before attention."""
    q = q.transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    v = v.transpose(1, 2).contiguous()
    return scaled_dot_product_attention(q, k, v).transpose(1, 2)


heads = [torch.randn(2, 64, 8, 32) for _ in range(3)]
print(stridewise.explain_compile(attention, *heads, time_limit=20))

model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)).eval()
images = torch.randn(4, 16, 32, 32)
print()
print(stridewise.explain_compile(model, images, time_limit=20))

channels_last = torch.channels_last
model, images = model.to(memory_format=channels_last), images.to(memory_format=channels_last)
result = stridewise.explain_compile(model, images, compare=False)
print(f"\nIn channels_last: {sum(graph.copies for graph in result.graphs)} copies.")
