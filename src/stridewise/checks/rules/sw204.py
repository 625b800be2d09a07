"""SW204 fused-optimizer-strides: a fused optimizer will walk a parameter, its gradient or its state flat.

What it means
    With `fused=True` on the CPU a step takes parameter, gradient and state for memory of so many elements, one behind
    the other. Where their strides differ, elements are paired wrongly: wrong updates. Where a parameter has gaps, its
    neighbours in memory are overwritten; where it is expanded, the step writes past its storage. Nothing is raised.

Why it happens
    The kernel looks at no strides. Gradients have those of their parameter when autograd first makes them, unless that
    has gaps; a gradient that was assigned by hand, or state that was made before `.to(memory_format=…)`, has others.
    On CUDA the same is refused with an error, according to its source; it was not run here.

How to fix it
    Give the parameter memory of its own, `p.data = p.data.clone()`, which keeps ties, before the optimizer is made;
    make the optimizer after the change of format; or leave `fused` out: `foreach=True` looks at strides.

When to ignore it
    Never on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stridewise.checks.preflight.facts import OptimizerFacts, OptimizerState, StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, is_non_overlapping_and_dense

SEVERITY: Severity = "error"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.weight = torch.nn.Parameter(torch.randn(8, 8)[:, ::2])
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), fused=True)}
""",
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
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
    """One finding for each parameter that a fused step would harm."""
    found = []
    for optimizer in subject.optimizers:
        state: dict[str, list[OptimizerState]] = {}
        for row in optimizer.state:
            state.setdefault(row.parameter, []).append(row)
        for tensor in subject.parameters():
            if not optimizer.fused.isdisjoint(tensor.names) and tensor.requires_grad:
                own = [row for name in tensor.names for row in state.get(name, ())]
                found += [finding(__name__, problem) for problem in _problems(tensor, optimizer, own)]
    return found


def _problems(tensor: StateTensor, optimizer: OptimizerFacts, state: Sequence[OptimizerState]) -> Iterator[Problem]:
    who = f"`{optimizer.name}(fused=True)`"
    site = object_site(tensor.thing, tensor.module)
    if not is_non_overlapping_and_dense(tensor.layout):
        message = (
            f"{who} will update `{tensor.name}`, {described(tensor.layout)}, as if it were flat: wrong values, and"
            " memory"
            " beside it is overwritten."
        )
        advice = (
            f"Give it memory of its own before the optimizer is made: `p.data = p.data.clone()` for `{tensor.name}`."
        )
        yield Problem(site, message, advice, (f"the parameter is {strided(tensor.layout)}",), details=("parameter",))
        return
    for what, other, severity in _others(tensor, state):
        message = (
            f"{who} pairs `{tensor.name}`, {strided(tensor.layout)}, with its {what}, strides {other.strides}, element"
            " by element in memory: wrong updates."
        )
        if severity == "note":
            message = (
                f"`{tensor.name}` and its {what} differ in strides of dimensions of size 1 only:"
                f" {strided(tensor.layout)}"
                f" and {other.strides}. That does no harm on the CPU; {who} on CUDA raises for it, says its source."
            )
        evidence = f"the strides of the parameter and of its {what} were compared, dimensions of size 1 aside"
        advice = "Make the optimizer after the change of format, or use `foreach=True` in the place of `fused=True`."
        yield Problem(site, message, advice, (evidence,), severity, details=(what,))


def _others(tensor: StateTensor, state: Sequence[OptimizerState]) -> Iterator[tuple[str, Layout, Severity | None]]:
    """What a step reads together with the parameter, and lies otherwise."""
    candidates = [("gradient", layout) for layout in (tensor.gradient, tensor.observed) if layout is not None]
    candidates += [(f"state `{row.key}`", row.layout) for row in state]
    seen = set()
    for what, layout in candidates:
        how = apart(tensor.layout, layout)
        if what in seen or how == "no" or (how == "size 1" and tensor.device == "cpu"):
            continue
        seen.add(what)
        yield what, layout, "note" if how == "size 1" else None
