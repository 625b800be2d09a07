"""SW211 library-call-raises: functions of torch's own raise for parameters of this model.

What it means
    The model has parameters that are not contiguous. `torch.nn.init.orthogonal_` and
    `torch.nn.utils.parameters_to_vector` take a `view` of each, and raise for those.

Why it happens
    `.to(memory_format=torch.channels_last)` was called before the initialisation, or before code that flattens all
    parameters, as second-order optimizers and weight averaging do.

How to fix it
    Initialise first and convert then; flatten with `torch.cat([p.reshape(-1) for p in model.parameters()])`.

When to ignore it
    If neither function is called on the model.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import is_contiguous

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    return {"model": torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)}
""",
)
QUIET = (
    """
import torch

def subject():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return {"model": model, "optimizer": optimizer, "sample": (torch.randn(2, 3, 8, 8),)}
""",
    """
import torch

def subject():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
""",
)


CALLS = ("torch.nn.init.orthogonal_", "torch.nn.utils.parameters_to_vector")
"""A test runs all functions of these two modules over channels_last parameters: these raise."""


def check(subject: Subject) -> list[Finding]:
    """One finding for a model with such parameters."""
    found = [tensor for tensor in subject.parameters() if not is_contiguous(tensor.layout)]
    if not found:
        return []
    names = " and ".join(f"`{name}`" for name in CALLS)
    message = f"{names} raise for {len(found)} parameters that are not contiguous, such as `{found[0].name}`."
    advice = "Call them before the conversion; flatten with `torch.cat([p.reshape(-1) for p in model.parameters()])`."
    site = object_site(found[0].thing, found[0].module)
    evidence = f"`{found[0].name}`, {strided(found[0].layout)}"
    return [finding(__name__, Problem(site, message, advice, (evidence,), count=len(found)))]
