"""Strided views under the names that the article's measured tables give them."""

from collections.abc import Callable

import torch
from torch import Tensor

Views = dict[str, Callable[[], Tensor]]

CHANNELS_LAST = torch.channels_last


def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tensor]:
    """A row-major tensor, made when it is asked for."""
    return lambda: torch.randn(sizes, dtype=dtype)


def images(n: int = 8, c: int = 64, h: int = 56, w: int = 56, dtype: torch.dtype = torch.float32) -> Views:
    """Views of sizes (n, c, h, w)."""

    def new(*sizes: int) -> Tensor:
        return torch.randn(sizes, dtype=dtype)

    return {
        "channels_last": lambda: new(n, c, h, w).contiguous(memory_format=CHANNELS_LAST),
        "HWC permuted (=CL strides)": lambda: new(n, h, w, c).permute(0, 3, 1, 2),
        "H<->W transposed": lambda: new(n, c, w, h).transpose(2, 3),
        "N<->C transposed": lambda: new(c, n, h, w).transpose(0, 1),
        "chan slice [:, :C] of 2C": lambda: new(n, 2 * c, h, w)[:, :c],
        "crop [..,:H,:W] of +8": lambda: new(n, c, h + 8, w + 8)[..., :h, :w],
        "spatial ::2": lambda: new(n, c, 2 * h, 2 * w)[..., ::2, ::2],
        "batch ::2": lambda: new(2 * n, c, h, w)[::2],
        "batch expand": lambda: new(1, c, h, w).expand(n, c, h, w),
        "CL crop": lambda: new(n, c, h + 8, w + 8).contiguous(memory_format=CHANNELS_LAST)[..., :h, :w],
    }


def sequences(b: int = 64, s: int = 128, e: int = 256) -> Views:
    """Views of sizes (b, s, e)."""
    return {
        "transpose(0,1)": lambda: torch.randn(s, b, e).transpose(0, 1),
        "transpose(1,2)": lambda: torch.randn(b, e, s).transpose(1, 2),
        "last narrow": lambda: torch.randn(b, s, 2 * e)[..., :e],
        "last ::2": lambda: torch.randn(b, s, 2 * e)[..., ::2],
        "seq narrow": lambda: torch.randn(b, 2 * s, e)[:, :s],
        "seq ::2": lambda: torch.randn(b, 2 * s, e)[:, ::2],
        "batch expand": lambda: torch.randn(1, s, e).expand(b, s, e),
    }


def matrices(m: int, k: int) -> Views:
    """Views of sizes (m, k)."""
    return {
        "t": lambda: torch.randn(k, m).t(),
        "cols ::2": lambda: torch.randn(m, 2 * k)[:, ::2],
        "both ::2": lambda: torch.randn(2 * m, 2 * k)[::2, ::2],
        "expand rows": lambda: torch.randn(1, k).expand(m, k),
        "expand cols": lambda: torch.randn(m, 1).expand(m, k),
    }


def batches(b: int, n: int, k: int) -> Views:
    """Views of sizes (b, n, k): batches of matrices."""
    return {
        "permute(2,0,1) of (N,K,B)": lambda: torch.randn(n, k, b).permute(2, 0, 1),
        "last ::2": lambda: torch.randn(b, n, 2 * k)[..., ::2],
        "rows expand": lambda: torch.randn(b, 1, k).expand(b, n, k),
        "cols expand": lambda: torch.randn(b, n, 1).expand(b, n, k),
        "(B,K,2N)[:,:, ::2].T": lambda: torch.randn(b, k, 2 * n)[:, :, ::2].transpose(1, 2),
        "from (M,B,K)": lambda: torch.randn(n, b, k).transpose(0, 1),
    }
