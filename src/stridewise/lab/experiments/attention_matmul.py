"""Attention scores as a 4-D matmul of heads that were split by a transpose."""

import torch

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Experiment


def run(bench: Bench, batch: int, tokens: int, heads: int, width: int) -> None:
    """`q` and `k` are (batch, tokens, heads, width), and the product wants heads in front of tokens."""
    q, k = (bench.randn(batch, tokens, heads, width) for _ in range(2))
    one, other = q.transpose(1, 2), k.transpose(1, 2)
    dense_one, dense_other = one.contiguous(), other.contiguous()
    times = bench.compare(
        "Attention scores, q @ k^T",
        {
            "dense heads": lambda: dense_one @ dense_other.transpose(2, 3),
            "split heads": lambda: one @ other.transpose(2, 3),
            "split heads, `.contiguous()` in front": lambda: one.contiguous() @ other.contiguous().transpose(2, 3),
            "split heads, einsum": lambda: torch.einsum("bihd,bjhd->bhij", q, k),
        },
    )
    bench.predict("C88", times.copies("split heads", least=2))
    bench.predict("C88", times.faster("split heads, `.contiguous()` in front", than="split heads"))


EXPERIMENT = Experiment(
    name="attention-matmul",
    title="4-D matmul of split heads",
    method="The scores of one attention, of dense heads, of heads that a transpose split off, and of copies of these.",
    claims={
        "C88": copy_in_front(
            "A 4-D matmul folds its batches by reshape, which copies split heads in any case: a copy in front costs "
            "the same, and can be the better of the two; `scaled_dot_product_attention` needs neither.",
        )
    },
    run=run,
    cpu={"batch": 4, "tokens": 128, "heads": 8, "width": 64},
    cuda={"batch": 32, "tokens": 512, "heads": 16, "width": 64},
    quick={"batch": 4, "tokens": 64, "heads": 8, "width": 64},
)
