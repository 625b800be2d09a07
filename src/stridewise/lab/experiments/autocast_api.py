"""The name by which autocast is called."""

import warnings
from collections.abc import Callable

import torch

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench) -> None:
    """Make a region of each, and count what says that a name is to be given up."""
    there = hasattr(torch.cuda.amp, "autocast")
    bench.expect("C63", "`torch.cuda.amp.autocast` is there", there, "it is" if there else "it is not")
    kinds: dict[str, Callable[[], object]] = {'torch.autocast("cuda")': lambda: torch.autocast("cuda")}
    if there:
        kinds["torch.cuda.amp.autocast()"] = lambda: torch.cuda.amp.autocast()
    told = {name: _told(make) for name, make in kinds.items()}
    bench.count("Deprecation warnings when it is used", "warnings", {name: len(each) for name, each in told.items()})
    old = told.get("torch.cuda.amp.autocast()", ["it is gone"])
    bench.expect("C63", "it is not deprecated", not old, old[0] if old else "no warning")


def _told(make: Callable[[], object]) -> list[str]:
    """What is said of a name's end when it is used."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [str(each.message) for each in caught if issubclass(each.category, (FutureWarning, DeprecationWarning))]


EXPERIMENT = Experiment(
    name="autocast-api",
    title="The name of autocast",
    method="Both names are used, and what torch warns of is kept.",
    claims={
        "C63": Claim(
            "3.3",
            "`torch.cuda.amp.autocast` is how mixed precision is switched on.",
            'It still works and is deprecated since torch 2.4: the name is `torch.autocast("cuda")`, which takes other '
            "devices too.",
        ),
    },
    run=run,
)
