"""What `fix` wins: per model, a step's time with the winning edits over its time without, with the interval.

`python benchmarks/repair.py [--models NAME …] [--train] [--time-limit S]` tries transformers models and the small
programs of `tests/repair/programs.py`; then it compares `--same N` pairs of identical programs, none of which may have
a winner. Arms take turns inside one process. What is printed holds for this machine.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import stridewise
from stridewise.measure.timing import compare
from stridewise.repair.trial.bench import Timer
from stridewise.repair.trial.workload import of_model
from stridewise.results import Measurement, Repair

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "real"), str(TESTS / "repair")]


def shown(name: str, repair: Repair) -> float:
    """Print a model's row, and the trials behind it; gives the ratio of the winners together, 1 without any."""
    together = repair.together
    step = f"{(repair.step_ns or 0) / 1e6:8.1f} ms"
    if together is None or together.ratio is None:
        print(f"{name:22} {step}  nothing to win                {verdicts(repair)}")
    else:
        print(f"{name:22} {step}  {figures(together)}  {verdicts(repair)}")
    for trial in repair.trials:
        ratio = "  -  " if trial.ratio is None else f"{trial.ratio:.3f}"
        said = f" ({trial.reason})" if trial.reason else ""
        print(f"    {'*' if trial.kept else ' '} {ratio}  {trial.verdict:13} {trial.candidate}: {trial.what}{said}")
    return together.ratio if together is not None and together.ratio is not None else 1.0


def figures(measured: Measurement) -> str:
    copies = f"copies {measured.copies_before:g} -> {measured.copies_after:g}"
    return f"{measured.ratio:.3f} [{measured.low:.3f}, {measured.high:.3f}]  {copies}"


def verdicts(repair: Repair) -> str:
    counts = dict.fromkeys(("won", "no difference", "lost", "refused"), 0)
    for trial in repair.trials:
        counts[trial.verdict] += 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def transformers_models(names: list[str], train: bool, batch: int, limit: float) -> dict[str, float]:
    from models import MODELS

    ratios = {}
    for name in names or [name for name in MODELS if name != "resnet_channels_last"]:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        inputs = {key: torch.cat([value] * batch) for key, value in inputs.items()}
        ratios[name] = shown(name, stridewise.fix(model, train=train, time_limit=limit, **inputs))
    return ratios


def small_programs(limit: float) -> dict[str, float]:
    from programs import FAULTS, HEALTHY
    from running import load

    ratios = {}
    sources = {name: (known.source, known.train) for name, known in FAULTS.items()}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (source, train)) in enumerate({**sources, "healthy": (HEALTHY, False)}.items()):
            made: Any = load(Path(folder), source, f"small_{number}")
            model, args = made.make()
            ratios[name] = shown(name, stridewise.fix(model, *args, train=train, time_limit=limit))
    return ratios


class Same:
    """One of two arms that are the same program."""

    def __init__(self, step: Callable[[], int]) -> None:
        self._step = step

    def enter(self) -> None:
        pass

    def run(self) -> int:
        return self._step()


def same_programs(number: int, limit: float) -> int:
    """How many of some pairs of identical programs have a winner or a loser."""
    torch.manual_seed(0)
    width = 256
    layers = [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    model, x = nn.Sequential(*layers * 4), torch.randn(64, width)
    timer = Timer()
    decided = 0
    with of_model(model, (x,), {}, train=True, loss=None) as workload:
        for seed in range(number):
            arms = Same(workload.timed), Same(workload.timed)
            timed = compare(*arms, clock=timer.clock, deadline=timer.clock() + limit, seed=seed)
            decided += timed.verdict in ("won", "lost")
            print(f"    {timed.verdict}: {timed.interval} in {timed.pairs} pairs of {timed.steps} steps")
    return decided


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--same", type=int, default=20)
    parser.add_argument("--skip-models", action="store_true")
    arguments = parser.parse_args()

    ratios: dict[str, float] = {}
    if not arguments.skip_models:
        print("step time with the winning edits / without, [95 % interval]; * is kept")
        ratios |= transformers_models(arguments.models, arguments.train, arguments.batch, arguments.time_limit)
        ratios |= small_programs(arguments.time_limit)
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"geometric mean of {len(ratios)}: {mean:.3f}; the worst: {max(ratios.values()):.3f}")
    if arguments.same:
        print(f"{arguments.same} pairs of identical programs:")
        print(f"declared different: {same_programs(arguments.same, 20)}")


if __name__ == "__main__":
    main()
