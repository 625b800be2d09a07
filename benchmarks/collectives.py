"""What `guard_collectives` costs where tensors are contiguous: ratios of guarded to bare calls, on gloo.

`python benchmarks/collectives.py [--repeat N] [--calls N] [--ranks N]`. Bare and guarded calls take turns, so that what
else the machine does falls on both; figures are the median of the rounds' ratios. With one rank, what is measured is
the Python around a collective and little else; with two, a real one over loopback.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from stridewise.checks.ranks import guard_collectives


def seconds(calls: int, act: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        act()
    return time.perf_counter() - start


def measure(rank: int, ranks: int, store: str, repeat: int, calls: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    small, image = torch.zeros(16), torch.zeros(2, 3, 8, 8)
    last = image.to(memory_format=torch.channels_last)
    cases: tuple[tuple[str, Callable[[], object]], ...] = (
        ("all_reduce of 16 elements", lambda: dist.all_reduce(small)),
        ("broadcast of 16 elements", lambda: dist.broadcast(small, 0)),
        ("all_reduce, channels_last on all ranks", lambda: dist.all_reduce(last)),
    )
    for name, act in cases:
        ratios: dict[str, list[float]] = {"guard": [], "across_ranks": []}
        bare_ns = []
        seconds(calls, act)
        for _ in range(repeat):
            bare = seconds(calls, act)
            bare_ns.append(bare / calls * 1e9)
            with guard_collectives():
                ratios["guard"].append(seconds(calls, act) / bare)
            with guard_collectives(across_ranks=True):
                act()  # connects
                ratios["across_ranks"].append(seconds(calls, act) / bare)
        if rank == 0:
            shown = ", ".join(f"{key} {statistics.median(values):.2f}" for key, values in ratios.items())
            print(
                f"{ranks} rank(s), {name}: bare {statistics.median(bare_ns) / 1000:.1f} us a call; times that: {shown}"
            )
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            given = ranks, f"{folder}/store", options.repeat, options.calls
            mp.spawn(measure, args=given, nprocs=ranks)


if __name__ == "__main__":
    main()
