"""SW224 optimizer-state-strides: an optimizer's state has other strides than its parameter.

What it means
    Momentum or averages, or a gradient that was assigned, lie in another order than the parameter that they belong to.
    Results are right, unless the optimizer is fused (SW204). Steps are slower: each of their operations reads two
    orders at once; and on CUDA, where one kernel updates many tensors of equal strides, each tensor gets its own.

Why it happens
    The state was made by a step before `model.to(memory_format=…)`, or loaded from a checkpoint of another format. A
    gradient comes from `torch.autograd.grad`, which does not give it its parameter's strides as `backward` does.

How to fix it
    Convert the model before the optimizer makes its first step; or bring the state along:
    `state[key] = torch.empty_like(p).copy_(state[key])`, which has the parameter's strides.

When to ignore it
    If steps of the optimizer take no time that matters.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from stridewise.checks.preflight.facts import OptimizerFacts, StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, is_non_overlapping_and_dense

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


_SHOWN = 3


class _Apart(Struct, frozen=True):
    """A parameter, and what lies in another order."""

    tensor: StateTensor
    what: str
    layout: Layout


def check(subject: Subject) -> list[Finding]:
    """One finding for each optimizer that is not fused: for its state, and for gradients that were assigned."""
    found = []
    for optimizer in subject.optimizers:
        ours = {name: tensor for tensor in _judged(subject, optimizer) for name in tensor.names}
        state = [
            _Apart(ours[row.parameter], f"`{row.key}`", row.layout)
            for row in optimizer.state
            if row.parameter in ours and apart(ours[row.parameter].layout, row.layout) == "yes"
        ]
        gradients = [
            _Apart(tensor, "gradient", tensor.gradient)
            for tensor in _judged(subject, optimizer)
            if tensor.gradient is not None and apart(tensor.layout, tensor.gradient) == "yes"
        ]
        found += [
            finding(__name__, _problem(optimizer, kind, group))
            for kind, group in (("state", state), ("gradients", gradients))
            if group
        ]
    return found


def _judged(subject: Subject, optimizer: OptimizerFacts) -> Iterator[StateTensor]:
    """Its parameters, without those that have gaps: nothing that is made like them has the same strides."""
    for tensor in subject.parameters():
        is_ours = not optimizer.parameters.isdisjoint(tensor.names) and optimizer.fused.isdisjoint(tensor.names)
        if is_ours and is_non_overlapping_and_dense(tensor.layout):
            yield tensor


def _problem(optimizer: OptimizerFacts, kind: str, group: list[_Apart]) -> Problem:
    first = group[0]
    names = dict.fromkeys(each.tensor.name for each in group)
    more = f" and of {len(names) - 1} more parameters" if len(names) > 1 else ""
    is_on_cuda = first.tensor.device == "cuda" and not optimizer.foreach.isdisjoint(first.tensor.names)
    costs = "takes a kernel for each of them" if is_on_cuda else "reads two orders at once, which is slower"
    advice = (
        "Convert the model before the optimizer's first step, or its state as well:"
        " `state[key] = torch.empty_like(p).copy_(state[key])`."
        if kind == "state"
        else "`p.grad = torch.empty_like(p).copy_(gradient)`."
    )
    return Problem(
        object_site(f"{kind} of `{first.tensor.name}`", first.tensor.module),
        f"{first.what[:1].upper()}{first.what[1:]} of `{first.tensor.name}`{more} lies in another order than the"
        f" parameter: strides {first.layout.strides}, not {first.tensor.layout.strides}. A step of"
        f" `{optimizer.name}` {costs}.",
        advice,
        tuple(
            f"`{each.tensor.name}`: {strided(each.tensor.layout)}; its {each.what}: strides {each.layout.strides}"
            for each in group[:_SHOWN]
        ),
        count=len(names),
        details=(optimizer.name, kind),
    )
