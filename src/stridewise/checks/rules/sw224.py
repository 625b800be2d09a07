"""SW224 optimizer-state-strides: an optimizer's state has other strides than its parameter.

What it means
    Momentum or averages lie in another order than the parameter that they belong to. Results are right, unless the
    optimizer is fused (SW204). Steps are slower: updating many tensors in one kernel needs equal strides, and falls
    back to one after the other.

Why it happens
    The state was made by a step before `model.to(memory_format=…)`, or loaded from a checkpoint of another format.

How to fix it
    Convert the model before the optimizer makes its first step; or bring the state along:
    `state[key] = state[key].contiguous(memory_format=…)`.

When to ignore it
    If steps of the optimizer take no time that matters.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    model.to(memory_format=torch.channels_last)
    return {"model": model, "optimizer": optimizer}
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
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 1))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    return {"model": model, "optimizer": optimizer, "sample": (images,)}
""",
    """
import torch

def subject():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for each optimizer that is not fused and has such state."""
    by_name = {name: tensor for tensor in subject.parameters() for name in tensor.names}
    found = []
    for optimizer in subject.optimizers:
        odd = [
            (row, by_name[row.parameter])
            for row in optimizer.state
            if row.parameter in by_name
            and row.parameter not in optimizer.fused
            and apart(by_name[row.parameter].layout, row.layout) == "yes"
        ]
        if not odd:
            continue
        row, tensor = odd[0]
        message = (
            f"`{optimizer.name}` keeps {len(odd)} tensors in another order than their parameters, such as"
            f" `{row.key}` of"
            f" `{tensor.name}`: its steps update them one after the other."
        )
        evidence = f"`{tensor.name}`, {strided(tensor.layout)}; `{row.key}` has strides {row.layout.strides}"
        advice = "Convert the model before the optimizer's first step, or convert the state as the model was."
        site = object_site(f"state of `{tensor.name}`", tensor.module)
        found.append(
            finding(__name__, Problem(site, message, advice, (evidence,), count=len(odd), details=(optimizer.name,)))
        )
    return found
