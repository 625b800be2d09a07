"""SW223 odd-size-one-strides: the last dimension has size 1 and a stride that some kernels refuse.

What it means
    The tensor counts as contiguous, as strides of dimensions of size 1 do not count. What reads the last stride does
    not know that: `view(dtype)` to a smaller or larger type raises that it must be 1, and so do kernels that check it.

Why it happens
    It was transposed or sliced while another dimension had the size 1. `.contiguous()` finds nothing to do, and nor
    does `.to(memory_format=torch.contiguous_format)`.

How to fix it
    `x.clone(memory_format=torch.contiguous_format)`, which gives each dimension the stride that it should have.

When to ignore it
    If no such kernel takes it.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._formats import CHANNELS_LAST
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, format_strides, is_contiguous

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(1, 8)
    model.weight = torch.nn.Parameter(torch.randn(1, 8).t())
    return {"model": model}
""",
    """
import torch

def subject():
    return {"model": torch.nn.Identity(), "sample": (torch.arange(8.0).reshape(1, 1, 8).transpose(1, 2),)}
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
    return {"model": torch.nn.Identity(), "sample": (torch.arange(8.0).reshape(1, 8, 1),)}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for each such parameter, buffer, and tensor of the sample."""
    things = [(tensor.thing, tensor.kind == "parameter", tensor.module, tensor.layout) for tensor in subject.tensors]
    things += [(f"`{tensor.path}`", False, "", tensor.layout) for tensor in subject.sample]
    found = []
    for thing, is_parameter, module, layout in things:
        if not _is_odd(layout):
            continue
        copy = "clone(memory_format=torch.contiguous_format)"
        problem = Problem(
            object_site(thing, module or None),
            f"{thing[:1].upper()}{thing[1:]}, {strided(layout)}, counts as contiguous, and its last stride is "
            f"{layout.strides[-1]}: `view(dtype)` and kernels that check that stride raise, and `.contiguous()` "
            "changes nothing.",
            f"`p.data = p.data.{copy}`." if is_parameter else f"`x.{copy}`.",
            (f"dimension {layout.ndim - 1} has size 1 and stride {layout.strides[-1]}",),
            details=(thing,),
        )
        found.append(finding(__name__, problem))
    return found


def _is_odd(layout: Layout) -> bool:
    if layout.is_empty or layout.ndim < 2 or layout.sizes[-1] != 1 or layout.strides[-1] == 1:
        return False
    # A 1x1 weight in channels_last has just such strides, and each convolution takes it.
    last = CHANNELS_LAST.get(layout.ndim)
    return is_contiguous(layout) and (last is None or layout.strides != format_strides(layout.sizes, last))
