"""What a contract costs for a tensor that fulfils it, in eager mode: nanoseconds a tensor, and ratios to a bare call.

`python benchmarks/contracts.py [--repeat N] [--calls N]`. Bare and decorated calls take turns, so that what else the
machine does falls on both; figures are CPU time, on one thread, and the best of the rounds. The promise is 2,000 ns a
tensor at most; it exits with 1 if a kind takes more. Ratios are to the bare call of an empty function, and to one that
does `x.add(1)` on a tensor of 16 elements, the smallest real work. Absolute times are of this machine alone.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from stridewise.checks.contracts import expect_layout, same_as

MOST_NS = 2_000
IMAGE = torch.randn(2, 3, 4, 5)
LAST = IMAGE.to(memory_format=torch.channels_last)
VOLUME = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
SMALL = torch.randn(4, 4)


def is_fine(tensor: torch.Tensor) -> bool:
    return True


CASES: list[tuple[str, dict[str, Any], tuple[torch.Tensor, ...]]] = [
    ("contiguous", {"a": "contiguous"}, (IMAGE,)),
    ("channels_last", {"a": "channels_last"}, (LAST,)),
    ("channels_last_3d", {"a": "channels_last_3d"}, (VOLUME,)),
    ("dense, contiguous", {"a": "dense"}, (IMAGE,)),
    ("dense, permuted", {"a": "dense"}, (IMAGE.transpose(1, 3),)),
    ("last_stride_1", {"a": "last_stride_1"}, (IMAGE[..., :2],)),
    ("non_overlapping, a slice", {"a": "non_overlapping"}, (IMAGE[..., ::2],)),
    ("same_as", {"b": same_as("a")}, (IMAGE, IMAGE)),
    ("a function", {"a": is_fine}, (IMAGE,)),
    ("contiguous, mode convert", {"a": "contiguous", "mode": "convert"}, (IMAGE,)),
    ("contiguous x 4", dict.fromkeys("abcd", "contiguous"), (IMAGE,) * 4),
]


def bare(a: Any = None, b: Any = None, c: Any = None, d: Any = None) -> None:
    """Does nothing."""


def small(a: Any = None, b: Any = None, c: Any = None, d: Any = None) -> Any:
    """The smallest real work."""
    return SMALL.add(1)


def timed(call: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        call(*args)
    return (time.process_time_ns() - start) / calls


def best(
    plain: Callable[..., Any], held: Callable[..., Any], args: Any, calls: int, repeat: int
) -> tuple[float, float]:
    rounds = [(timed(plain, args, calls), timed(held, args, calls)) for _ in range(repeat)]
    return min(first for first, _ in rounds), min(second for _, second in rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--calls", type=int, default=50_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':28} {'ns a tensor':>12} {'of empty':>10} {'of x.add(1)':>12}")
    worst = 0.0
    for name, asked, args in CASES:
        decorate = expect_layout(**asked)
        before, after = best(bare, decorate(bare), args, options.calls, options.repeat)
        work, held = best(small, decorate(small), args, options.calls // 2, options.repeat)
        tensors = sum(key in "abcd" for key in asked)
        each = (after - before) / tensors
        worst = max(worst, each)
        print(f"{name:28} {each:12.0f} {after / before:9.1f}x {held / work:11.2f}x")
    print(f"\nThe most is {worst:.0f} ns a tensor; promised are {MOST_NS:,}.")
    return int(worst > MOST_NS)


if __name__ == "__main__":
    sys.exit(main())
