"""What a second worker wins when many files are read: 64 traces on one Dask worker against two, the clusters started.

`python benchmarks/fleet.py [--trace FILE] [--files N] [--repeat N]`. All workers run throughout and take turns, so that
what else the machine does falls on all; the figure is the median of paired ratios. Plain processes that do the same
work show what two cores of this machine give at the moment: 2 where nothing else runs. The trace is
`../shared/traces/h100_timesformer.json.gz` if that lies beside the checkout (the repository does not have it), else one
that is made here. Absolute times are of this machine alone.
"""

import argparse
import gzip
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import dask
import msgspec
from distributed import Client, LocalCluster

from stridewise import api
from stridewise.fleet.cluster import CONFIG
from stridewise.fleet.work import Options, summarize_file

REAL = Path(__file__).resolve().parents[2] / "shared" / "traces" / "h100_timesformer.json.gz"


def make(path: Path, copies: int = 20_000) -> None:
    """A trace of one step with so many copies of transposed tensors."""
    shapes = {
        "Input Dims": [[64, 64], [64, 64], []],
        "Input Strides": [[64, 1], [1, 64], []],
        "Input type": ["float"] * 3,
    }
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "pid": 1, "tid": 1, "ts": 10 * at, "dur": 8, "args": shapes}
        for at in range(copies)
    ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode(), 1))


def start(workers: int) -> Any:
    """As stridewise starts them, but for the keys."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, scheduler_kwargs=quiet
    )


def on_dask(files: list[str], client: Any) -> None:
    fleet = api.analyze_fleet(files, cluster=client)
    assert len(fleet.rows) == len(files), fleet.failures


def in_pool(files: list[str], pool: ProcessPoolExecutor) -> None:
    """The peer: the same function in Python's own processes, and nothing merged."""
    options = msgspec.json.encode(Options(min_share=0.001))
    for _ in pool.map(summarize_file, files, files, [options] * len(files)):
        pass


def seconds(work: Callable[[list[str], Any], None], files: list[str], workers: Any) -> float:
    begin = time.perf_counter()
    work(files, workers)
    return time.perf_counter() - begin


def compare(files: list[str], repeat: int) -> None:
    spawn = get_context("spawn")
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(CONFIG))
        clients = [stack.enter_context(Client(stack.enter_context(start(workers)))) for workers in (1, 2)]
        pools = [stack.enter_context(ProcessPoolExecutor(workers, mp_context=spawn)) for workers in (1, 2)]
        arms = [(on_dask, client) for client in clients] + [(in_pool, pool) for pool in pools]
        for work, workers in arms:  # what is imported once in each worker is not what is measured
            work(files[:8], workers)
        ratios: dict[str, list[float]] = {"Dask": [], "plain processes": []}
        for turn in range(repeat):
            order = range(4) if turn % 2 == 0 else reversed(range(4))
            took = dict(sorted((arm, seconds(arms[arm][0], files, arms[arm][1])) for arm in order))
            for at, (name, found) in enumerate(ratios.items()):
                found.append(took[2 * at] / took[2 * at + 1])
                times = f"one worker {took[2 * at]:6.2f} s, two {took[2 * at + 1]:6.2f} s"
                print(f"  {name:<16} {times}: {found[-1]:.2f}x", flush=True)
    for name, found in ratios.items():
        print(f"{len(files)} files, {name}: two workers are {median(found):.2f}x as fast as one (median of {repeat})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trace", type=Path, default=REAL)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stridewise-") as folder:
        source = options.trace
        if not source.is_file():
            source = Path(folder, "made.json.gz")
            make(source)
        files = [Path(folder, f"rank{rank}.json.gz") for rank in range(options.files)]
        for file in files:
            shutil.copyfile(source, file)
        size = source.stat().st_size / 1e6
        print(f"{len(files)} copies of {source.name}, {size:.1f} MB each")
        compare(list(map(str, files)), options.repeat)


if __name__ == "__main__":
    main()
