"""SW206 strided-parameter: a parameter has gaps, repeats memory, or shares it with another parameter.

What it means
    A parameter is a view: a slice with gaps, a tensor that was expanded, overlapping windows; or two parameters hold
    the same memory, and an optimizer updates it twice. What writes to it in place writes to others, or is refused.

Why it happens
    `nn.Parameter(base[:, ::2])` and `nn.Parameter(bias.expand(8))` keep the view. Two names for one memory come from
    `load_state_dict(assign=True)` of tied weights, or from `.data = other.data`; one Parameter under two names is a
    tie, and is fine.

How to fix it
    `p.data = p.data.clone()` gives it memory of its own and keeps its ties; a tie is made again by assigning the
    Parameter itself: `head.weight = embed.weight`.

When to ignore it
    For a parameter that is never trained, sent or saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from stridewise import layout
from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, object_site
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout

SEVERITY: Severity = "error"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.bias = torch.nn.Parameter(torch.randn(1).expand(8))
    return {"model": model}
""",
    """
import torch

def subject():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight.data = model["embed"].weight.data
    return {"model": model}
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
    """
import torch

def subject():
    return {"model": torch.nn.LSTM(4, 8, 2)}
""",
)


_COUNTED = 1 << 20
"""Elements of views with gaps that are compared one by one."""


def check(subject: Subject) -> list[Finding]:
    """One finding for each such parameter or pair, and for each buffer whose elements share memory."""
    problems = [problem for tensor in subject.tensors for problem in _alone(tensor)]
    problems += _pairs(subject)
    return [finding(__name__, problem) for problem in problems]


def _alone(tensor: StateTensor) -> Iterator[Problem]:
    given = tensor.layout
    site = object_site(tensor.thing, tensor.module)
    advice = f"`p.data = p.data.clone()` for `{tensor.name}`, before an optimizer is made; it keeps ties."
    evidence = (layout.explain(given, tensor.itemsize),)
    if layout.is_overlapping(given):
        if tensor.kind == "buffer":
            return  # it is read, and a write to it is refused or guarded elsewhere
        message = (
            f"{_capital(tensor.thing)} is {described(given)}: several of its elements are one place in memory. A"
            " step of"
            " an optimizer raises, or writes each place several times."
        )
        yield Problem(site, message, advice, evidence, None if tensor.requires_grad else "warning", details=("shared",))
    elif layout.is_gapped(given) and tensor.kind == "parameter":
        message = (
            f"{_capital(tensor.thing)} is a view with gaps, {described(given)}: kernels copy it at each use, it"
            " keeps the"
            " whole of its storage alive, and code that walks it flat writes between its elements."
        )
        yield Problem(site, message, advice, evidence, "warning", details=("gaps",))


def _pairs(subject: Subject) -> Iterator[Problem]:
    """Trained parameters that are two objects with one memory."""
    by_storage: dict[int, list[StateTensor]] = {}
    for tensor in subject.parameters():
        if tensor.requires_grad and tensor.device != "meta" and not tensor.layout.is_empty:
            by_storage.setdefault(tensor.storage, []).append(tensor)
    for tensors in by_storage.values():
        for one, other in combinations(tensors, 2):
            if _meet(one, other):
                message = (
                    f"Parameters `{one.name}` and `{other.name}` are two objects that share memory: an optimizer"
                    " updates"
                    " it twice, once with each gradient."
                )
                evidence = (
                    f"bytes {one.reach[0]} to {one.reach[1]} and {other.reach[0]} to {other.reach[1]} of one storage"
                )
                advice = (
                    f"Tie them as one Parameter, assigning `{one.name}` to `{other.name}` itself; or `clone()` one."
                )
                site = object_site(f"parameters `{one.name}` and `{other.name}`", other.module)
                yield Problem(site, message, advice, (evidence,), details=(one.name, other.name))


def _meet(one: StateTensor, other: StateTensor) -> bool:
    """Whether some element is in both; not said of large views with gaps, which may lie between each other."""
    first, second = one.reach, other.reach
    if first[1] <= second[0] or second[1] <= first[0]:
        return False
    if not layout.is_gapped(one.layout) and not layout.is_gapped(other.layout):
        return True
    if max(one.view_bytes, other.view_bytes) > _COUNTED:
        return False
    return not _addresses(one.layout, one.itemsize).isdisjoint(_addresses(other.layout, other.itemsize))


def _addresses(given: Layout, itemsize: int) -> set[int]:
    found = {given.offset * itemsize}
    for size, stride in zip(given.sizes, given.strides, strict=True):
        found = {at + index * stride * itemsize for at in found for index in range(size)}
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
