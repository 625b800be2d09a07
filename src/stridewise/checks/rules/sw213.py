"""SW213 storage-kept-alive: a small parameter or buffer holds a large storage.

What it means
    It is a view of a storage that is much larger than what the model uses of it. All of that stays in memory, and
    `torch.save` and `pickle` write the whole of it. `copy.deepcopy` copies the whole of it for a buffer.

Why it happens
    It was cut out of a larger tensor: `nn.Parameter(table[:100])`, `register_buffer("mask", full[:n])`.

How to fix it
    `.clone()` where it is cut out. `.contiguous()` does nothing for a slice that is contiguous already. Of a parameter
    `p.data = p.data.clone()` keeps ties.

When to ignore it
    If the rest of the storage is in use elsewhere, and the model is not saved with `torch.save`.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, object_site
from stridewise.findings import Finding, Severity
from stridewise.layout import stored
from stridewise.results.numbers import byte_count

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.register_buffer("mask", torch.ones(1000, 1000)[:10])
    return {"model": model}
""",
)
QUIET = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.register_buffer("mask", torch.ones(1000, 1000)[:10].clone())
    return {"model": model}
""",
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
    flat = torch.randn(200_000)
    parts = torch.nn.ParameterList([torch.nn.Parameter(flat[:100_000]), torch.nn.Parameter(flat[100_000:])])
    return {"model": parts}
""",
)

_LEAST_WASTED = 64_000
_LEAST_FACTOR = 2


def check(subject: Subject) -> list[Finding]:
    """One finding for each storage of which the model uses less than half."""
    by_storage: dict[int, list[StateTensor]] = {}
    for tensor in subject.tensors:
        if tensor.device != "meta":
            by_storage.setdefault(tensor.storage, []).append(tensor)
    found = []
    for tensors in by_storage.values():
        whole = tensors[0].storage_bytes
        used = min(whole, sum(stored(tensor.layout) * tensor.itemsize for tensor in tensors))
        if whole - used >= _LEAST_WASTED and whole >= _LEAST_FACTOR * used:
            found.append(finding(__name__, _problem(tensors, used, whole)))
    return found


def _problem(tensors: list[StateTensor], used: int, whole: int) -> Problem:
    first = tensors[0]
    more = f" (and {len(tensors) - 1} more)" if len(tensors) > 1 else ""
    later = ", or `p.data = p.data.clone()` with it as `p`" if first.kind == "parameter" else ""
    return Problem(
        object_site(first.thing, first.module),
        f"{first.kind.capitalize()} `{first.name}`{more} is {byte_count(used)} of a storage of {byte_count(whole)}. "
        "All of that stays in memory, and is written by `torch.save`.",
        f"`.clone()` `{first.name}` where it is cut out{later}; `.contiguous()` may give the same view.",
        (
            f"{used:,} of {whole:,} bytes of the storage belong to parameters and buffers of the model",
            *(f"`{tensor.name}`: {described(tensor.layout)}" for tensor in tensors[:3]),
        ),
        count=len(tensors),
    )
