"""SW218 batch-of-one: an image lies in channels_last memory, and kernels will take it for NCHW.

What it means
    `is_contiguous(memory_format=torch.channels_last)` says True, as it does not look at dimensions of size 1.
    Convolution, pooling and interpolation do look at them, take the tensor for contiguous, and give NCHW.

Why it happens
    `x[0][None]`, `unsqueeze(0)` and `reshape` of a channels_last image give the batch dimension a stride that a
    channels_last tensor does not have.

How to fix it
    `x.to(memory_format=torch.channels_last)`, which copies here; `.contiguous(memory_format=torch.channels_last)` takes
    it for channels_last already, and returns it as it is. Or index with a slice, `x[:1]`, which keeps the dimension.

When to ignore it
    If the model is in NCHW.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import MemoryFormat, is_contiguous, suggested_format

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
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


_FORMATS: dict[int, MemoryFormat] = {4: "channels_last", 5: "channels_last_3d"}


def check(subject: Subject) -> list[Finding]:
    """One finding for each such tensor of the sample."""
    found = []
    for tensor in subject.sample:
        name = _FORMATS.get(len(tensor.layout.sizes))
        if name is None or is_contiguous(tensor.layout) or not is_contiguous(tensor.layout, name):
            continue
        if suggested_format(tensor.layout) == name:
            continue
        message = (
            f"`{tensor.path}`, {strided(tensor.layout)}, lies in {name} memory, and kernels will take it for"
            " contiguous:"
            " its batch dimension has a stride that such a tensor does not have."
        )
        advice = f"`x.to(memory_format=torch.{name})`, or `x[:1]` in the place of `x[0][None]`."
        evidence = f"is_contiguous(memory_format=torch.{name}) is True, and the format that kernels pick is contiguous"
        found.append(
            finding(
                __name__, Problem(object_site(f"`{tensor.path}`"), message, advice, (evidence,), details=(tensor.path,))
            )
        )
    return found
