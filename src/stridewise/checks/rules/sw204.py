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
    Give the parameter memory of its own, `p.data = p.data.clone()`, which keeps ties, before the optimizer's first
    step; make the optimizer after the change of format, or convert its state too; or leave `fused` out: the others look
    at strides.

When to ignore it
    Never on the CPU. Dimensions of size 1 do not count, and are not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from stridewise.checks.preflight.facts import OptimizerFacts, StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, is_non_overlapping_and_dense, is_overlapping

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


_Fault = Literal["overlap", "gaps", "gradient", "state"]
_SHOWN = 3


class _Harmed(Struct, frozen=True):
    """A parameter that a step harms, and what it reads together with it."""

    tensor: StateTensor
    fault: _Fault
    what: str = ""
    """`gradient`, ``state `exp_avg` ``."""
    other: Layout | None = None


def check(subject: Subject) -> list[Finding]:
    """One finding for each optimizer and each way in which its steps harm parameters."""
    found = []
    for optimizer in subject.optimizers:
        groups: dict[tuple[str, _Fault], list[_Harmed]] = {}
        for harmed in _harmed(subject, optimizer):
            groups.setdefault((harmed.tensor.device, harmed.fault), []).append(harmed)
        for (device, _), group in groups.items():
            problem = _on_cuda(optimizer, group) if device == "cuda" else _on_cpu(optimizer, group)
            found.append(finding(__name__, problem))
    return found


def _harmed(subject: Subject, optimizer: OptimizerFacts) -> Iterator[_Harmed]:
    """Each parameter once. Of other devices than these it is not known what their kernels do."""
    state: dict[str, list[tuple[str, Layout]]] = {}
    for row in optimizer.state:
        state.setdefault(row.parameter, []).append((row.key, row.layout))
    for tensor in subject.parameters():
        is_updated = tensor.requires_grad or tensor.gradient is not None
        if tensor.device not in ("cpu", "cuda") or not is_updated or optimizer.fused.isdisjoint(tensor.names):
            continue
        if is_overlapping(tensor.layout):
            yield _Harmed(tensor, "overlap")
        elif not is_non_overlapping_and_dense(tensor.layout):
            yield _Harmed(tensor, "gaps")
        else:
            yield from _mispaired(tensor, state.get(tensor.name, []))


def _mispaired(tensor: StateTensor, state: list[tuple[str, Layout]]) -> Iterator[_Harmed]:
    for layout in (tensor.gradient, tensor.observed):
        if layout is not None and apart(tensor.layout, layout) == "yes":
            yield _Harmed(tensor, "gradient", "gradient", layout)
            break
    for key, layout in state:
        if apart(tensor.layout, layout) == "yes":
            yield _Harmed(tensor, "state", f"state `{key}`", layout)
            break


def _on_cpu(optimizer: OptimizerFacts, group: list[_Harmed]) -> Problem:
    first = group[0]
    says = f"`{optimizer.name}(fused=True)` "
    if first.fault == "overlap":
        says += (
            f"will update {_named(group)}, {described(first.tensor.layout)}, as if each of its elements had a place of"
            " its own: the step writes past its end."
        )
    elif first.fault == "gaps":
        says += (
            f"will update {_named(group)}, {described(first.tensor.layout)}, as if its elements followed each other:"
            " wrong values, and what lies between them in memory is overwritten."
        )
    else:
        assert first.other is not None
        says += (
            f"pairs {_named(group)}, {strided(first.tensor.layout)}, with its {first.what}, strides"
            f" {first.other.strides}, element by element in memory: wrong updates."
        )
    return _problem(optimizer, group, says)


def _on_cuda(optimizer: OptimizerFacts, group: list[_Harmed]) -> Problem:
    first = group[0]
    why = f"with its {first.what}, strides {first.other.strides}" if first.other is not None else "which is not dense"
    says = (
        f"`{optimizer.name}(fused=True)` on CUDA raises for {_named(group)}, {strided(first.tensor.layout)}, {why}, as"
        " its source has it."
    )
    return _problem(optimizer, group, says)


def _named(group: list[_Harmed]) -> str:
    more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
    return f"`{group[0].tensor.name}`{more}"


_ADVICE: dict[_Fault, str] = {
    "overlap": "Give it memory of its own before the optimizer's first step: `p.data = p.data.clone()`.",
    "gaps": "Give it memory of its own before the optimizer's first step: `p.data = p.data.clone()`.",
    "gradient": "`p.grad = torch.empty_like(p).copy_(gradient)`, or `optimizer.zero_grad()` before the next backward.",
    "state": "Make the optimizer after the change of format, or convert its state as well:"
    " `state[key] = torch.empty_like(p).copy_(state[key])`. Or leave `fused=True` out.",
}


def _problem(optimizer: OptimizerFacts, group: list[_Harmed], message: str) -> Problem:
    first = group[0]
    evidence = tuple(
        f"`{each.tensor.name}`: {strided(each.tensor.layout)}"
        + (f"; its {each.what}: strides {each.other.strides}" if each.other is not None else "")
        for each in group[:_SHOWN]
    )
    site = object_site(first.tensor.thing, first.tensor.module)
    details = (optimizer.name, first.fault)
    return Problem(site, message, _ADVICE[first.fault], evidence, count=len(group), details=details)
