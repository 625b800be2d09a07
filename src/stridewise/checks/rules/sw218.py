"""SW218 batch-of-one: an image lies in channels_last memory, and kernels will take it for NCHW.

What it means
    `is_contiguous(memory_format=torch.channels_last)` says True, as it does not look at dimensions of size 1.
    Convolutions, pooling and interpolation do look at them and take the tensor for contiguous: they rearrange it and
    give NCHW. Convolutions with channels_last weights give NHWC all the same.

Why it happens
    `x[0][None]`, `unsqueeze(0)` and `reshape` of a channels_last image give the batch dimension a stride that a
    channels_last tensor does not have.

How to fix it
    Index with a slice, `x[:1]`, which keeps the dimension; or add the batch dimension before the permute,
    `image[None].permute(0, 3, 1, 2)`. Neither copies. `x.to(memory_format=torch.channels_last)` copies and cures it;
    `x.contiguous(memory_format=torch.channels_last)` gives the tensor back as it is.

When to ignore it
    If the model is in NCHW, and is meant to be.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._formats import CHANNELS_LAST
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, format_strides, is_contiguous, suggested_format

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    image = torch.randn(8, 8, 3).permute(2, 0, 1)
    return {"model": torch.nn.MaxPool2d(2), "sample": (image.unsqueeze(0),)}
""",
    """
import torch

def subject():
    images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    return {"model": torch.nn.Conv2d(3, 8, 3), "sample": (images[0][None],)}
""",
)
QUIET = (
    """
import torch

def subject():
    image = torch.randn(1, 8, 8, 3).permute(0, 3, 1, 2)
    return {"model": torch.nn.Conv2d(3, 8, 3), "sample": (image,)}
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
    images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    return {"model": torch.nn.Conv2d(3, 8, 3), "sample": (images[:1],)}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for each such tensor of the sample."""
    found = []
    for tensor in subject.sample:
        given = tensor.layout
        if not looks_other(given):
            continue
        name = CHANNELS_LAST[given.ndim]
        problem = Problem(
            object_site(f"`{tensor.path}`"),
            f"`{tensor.path}`, {strided(given)}, lies in {name} memory, and kernels take it for contiguous: "
            f"the stride of its batch dimension is {given.strides[0]}, not {format_strides(given.sizes, name)[0]}.",
            f"`x[:1]` in the place of `x[0][None]`, or `x.to(memory_format=torch.{name})`; `.contiguous` with that "
            "format gives it back as it is.",
            (f"is_contiguous(memory_format=torch.{name}) is True; the format that kernels pick is contiguous",),
            details=(tensor.path,),
        )
        found.append(finding(__name__, problem))
    return found


def looks_other(given: Layout) -> bool:
    """Whether a tensor is channels_last, and not contiguous, and kernels pick contiguous for it."""
    name = CHANNELS_LAST.get(given.ndim)
    if name is None or is_contiguous(given) or not is_contiguous(given, name):
        return False
    return suggested_format(given) != name
