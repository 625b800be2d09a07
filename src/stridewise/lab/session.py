"""Runs experiments one after the other, and keeps what each found."""

from __future__ import annotations

import datetime
import time
import warnings
from collections.abc import Callable, Sequence

from stridewise.lab.bench import FULL, QUICK, Bench
from stridewise.lab.devices import Device
from stridewise.lab.experiment import Experiment
from stridewise.lab.machine import machine
from stridewise.lab.ranks import Ranks
from stridewise.lab.settings import settings
from stridewise.lab.surroundings import as_found
from stridewise.results import numbers
from stridewise.results.lab import ClaimResult, ExperimentResult, Lab, Prediction, verdict

NOT_RUN_ON_GPU = "The lab's GPU paths were tested with a stand-in for the device: take these figures with care."

Progress = Callable[[int, int, Experiment], None]
"""Is told, before each experiment, its number from 0, how many there are, and which it is."""


def run(
    chosen: Sequence[Experiment],
    device: Device,
    *,
    quick: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Lab:
    """Run experiments in this process. Its settings, environment, random state and warning filters are as before
    afterwards.

    Without `threads` a quick run takes one: where something else runs too, every parallel region waits for the thread
    that was put aside, and that would be what is measured. KeyboardInterrupt ends the run: what was found until then is
    kept, and a note says what was not run.
    """
    started = datetime.datetime.now(datetime.UTC)
    begin = time.monotonic()
    found: list[ExperimentResult] = []
    notes: list[str] = []
    with settings(1 if quick and threads is None else threads) as odd, as_found(), Ranks() as ranks:
        notes += odd
        measured_on = machine(device)
        for at, experiment in enumerate(chosen):
            try:
                if progress is not None:
                    progress(at, len(chosen), experiment)
                found.append(run_one(experiment, Bench(device, QUICK if quick else FULL, ranks)))
            except KeyboardInterrupt:
                notes.append(f"Interrupted: {len(chosen) - at} of {len(chosen)} experiments were not run.")
                break
    unclear = sum(made.unclear for each in found for claim in each.claims for made in claim.predictions)
    if unclear:
        left = numbers.count(unclear, "prediction")
        notes.append(f"Times left {left} open: a quiet machine, or a run without --quick, may decide.")
    failed = [each.name for each in found if each.failed]
    if failed:
        notes.append(f"Ended early by an error: {', '.join(failed)}. What they had not come to was not tested.")
    return Lab(
        machine=measured_on,
        device=device.kind,
        quick=quick,
        date=started.date().isoformat(),
        seconds=round(time.monotonic() - begin, 2),
        experiments=tuple(found),
        whole=len(found) == len(chosen),
        notes=(*notes, *((NOT_RUN_ON_GPU,) if device.kind == "cuda" else ())),
    )


def run_one(experiment: Experiment, bench: Bench) -> ExperimentResult:
    """Run an experiment. An error ends it and is kept; KeyboardInterrupt goes through."""
    import torch

    sizes = experiment.sizes(bench.device.place, quick=bench.quick)
    begin = time.monotonic()
    failed = None
    on_gpu = bench.device.place == "cuda"
    devices = [torch.cuda.current_device()] if on_gpu else []
    with torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # torch.manual_seed seeds all devices, which nothing would put back
        if on_gpu:
            torch.cuda.manual_seed(0)
        try:
            experiment.run(bench, **sizes)
        except Exception as error:  # a size too large, an operator that this build lacks: the others go on
            failed = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return ExperimentResult(
        name=experiment.name,
        title=experiment.title,
        method=experiment.method,
        sizes=sizes,
        claims=tuple(_claims(experiment, bench, failed)),
        comparisons=tuple(compared.comparison() for compared in bench.compared),
        counts=tuple(bench.counted),
        seconds=round(time.monotonic() - begin, 2),
        failed=failed,
    )


def _claims(experiment: Experiment, bench: Bench, failed: str | None) -> list[ClaimResult]:
    unknown = {number for number, _ in bench.predictions} - set(experiment.claims)
    if unknown:
        raise AssertionError(f"{experiment.name} tests {', '.join(sorted(unknown))}, which it does not claim")
    found = []
    for number, claim in experiment.claims.items():
        if experiment.told is not None and number not in experiment.told:
            continue
        predictions = tuple(made for name, made in bench.predictions if name == number)
        if failed is not None:  # what came true so far would stand for the whole
            predictions = tuple(Prediction(made.text, None, "the experiment ended early") for made in predictions)
        found.append(ClaimResult(number, claim.section, claim.text, claim.correct, verdict(predictions), predictions))
    return found
