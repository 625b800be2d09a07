"""What recording costs, as ratios to the same step under torch.profiler with shapes, inside one run.

The second step of each recording and of each profile is what is timed; a recording's first is given beside it.

`python benchmarks/recording.py [--models NAME …] [--repeat N] [--batch N] [--cpu]`. Arms take turns, so that what else
the machine does falls on both; the figure is the median of paired ratios. Absolute times are of this machine alone.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch.profiler import ProfilerActivity, profile

import stridewise

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))

Step = Callable[[], Any]


clock = time.perf_counter


def timed(step: Step) -> float:
    start = clock()
    step()
    return clock() - start


def plain(step: Step) -> float:
    return timed(step)


def profiled(step: Step) -> float:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):
        step()
        return timed(step)


def recorded(step: Step) -> float:
    with stridewise.record():
        step()
        return timed(step)


def recorded_first(step: Step) -> float:
    """The first step of a recording also meets every expression, module and tensor for the first time."""
    with stridewise.record():
        return timed(step)


def compare(name: str, step: Step, repeat: int) -> tuple[float, float]:
    """Print and return the median ratio of recorded to profiled, and the calls a millisecond of the plain step."""
    for arm in (plain, profiled, recorded, recorded_first):
        arm(step)
    rows = []
    for turn in range(repeat):
        arms = (profiled, recorded) if turn % 2 == 0 else (recorded, profiled)
        gc.collect()
        times = {arm: arm(step) for arm in (plain, *arms, recorded_first)}
        rows.append((times[plain], times[profiled], times[recorded], times[recorded_first]))
    with stridewise.record() as recording:
        step()
    calls = len(recording.trace.log.calls)
    base = median(row[0] for row in rows)
    ratio = median(row[2] / row[1] for row in rows)
    print(
        f"{name:24s} plain {base * 1e3:8.2f} ms  profiler {median(row[1] / row[0] for row in rows):5.2f}x of plain  "
        f"recording {ratio:5.2f}x of profiler, its first step {median(row[3] / row[1] for row in rows):5.2f}x  "
        f"{calls / base / 1e3:5.1f} calls a ms"
    )
    return ratio, calls / base / 1e3


def tiny_adds() -> Step:
    x = torch.ones(4)

    def step() -> None:
        y = x
        for _ in range(500):
            y = y + x

    return step


def tiny_modules() -> Step:
    model = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(500)])
    x = torch.ones(4)
    return lambda: model(x)


def report_time(repeat: int) -> None:
    """From the end of the step to the report, for 10,000 operators."""
    x = torch.ones(64, 32)
    norm = torch.nn.LayerNorm(64)

    def step() -> None:
        for _ in range(450):
            y = norm(x.t() * 2)
            (y + 1).softmax(-1)

    seconds = []
    for _ in range(repeat):
        recorder = stridewise.record()
        with recorder as recording:
            step()
            start = clock()
        report = stridewise.analyze(recording)
        seconds.append(clock() - start)
        ops = sum(not op.name.startswith("stridewise:") for op in recording.trace.ops)
        assert report.copies
    print(
        f"end of step to report: {median(seconds):.2f} s, {ops:,} ops: {median(seconds) / ops * 1e4:.2f} s per 10,000"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--batch", type=int, default=1, help="how often the models' inputs are repeated")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time on one thread, where others use the machine: longer arms wait more"
    )
    arguments = parser.parse_args()
    from models import MODELS, build

    global clock
    clock = time.process_time if arguments.cpu else time.perf_counter
    torch.set_num_threads(1 if arguments.cpu else 2)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.repeat} pairs")
    compare("500 tiny adds", tiny_adds(), arguments.repeat * 3)
    compare("500 one-op modules", tiny_modules(), arguments.repeat * 3)
    report_time(arguments.repeat)
    large, launch_bound = [], []
    for name in arguments.models if arguments.models is not None else MODELS:
        for train in (False, True):
            step = build(name, train, arguments.batch)
            ratio, rate = compare(f"{name} {'train' if train else 'eval'}", step, arguments.repeat)
            (launch_bound if rate > 10 else large).append(ratio)
    for what, ratios in (("at most 10 calls a ms", large), ("over 10 calls a ms", launch_bound)):
        if ratios:
            print(f"{len(ratios)} steps of {what}: median {median(ratios):.2f}x, worst {max(ratios):.2f}x")


if __name__ == "__main__":
    main()
