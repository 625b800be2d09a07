"""SW209 conversion-raises: `.to(memory_format=torch.channels_last)` will raise for this model.

What it means
    The model has weights of 4 and of 5 dimensions. `Module.to` gives one format to all that have 4 or 5, and
    channels_last is for 4 dimensions only: "required rank 4 tensor to use channels_last format".

Why it happens
    It holds Conv2d beside Conv3d, or another layer with 5-D weights.

How to fix it
    Convert each parameter by its own number of dimensions, in place of the one call:
    `for p in model.parameters(): p.data = p.data.contiguous(memory_format=…)` with channels_last for 4 and
    channels_last_3d for 5 dimensions.

When to ignore it
    If nobody converts the model.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    return {"model": torch.nn.ModuleList([torch.nn.Conv2d(3, 4, 3), torch.nn.Conv3d(3, 4, 3)])}
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
    return {"model": torch.nn.Conv3d(3, 4, 3)}
""",
)


_ADVICE = (
    "Convert by the number of dimensions: `for p in model.parameters(): p.data ="
    " p.data.contiguous(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}.get(p.dim(),"
    " torch.contiguous_format))`."
)


def check(subject: Subject) -> list[Finding]:
    """One finding for a model that holds both."""
    # As in `Module.to`: floating point tensors, buffers too, of 4 or 5 dimensions.
    floats = [tensor for tensor in subject.tensors if tensor.dtype.startswith(("float", "bfloat", "complex"))]
    flat = [tensor for tensor in floats if len(tensor.layout.sizes) == 4]
    deep = [tensor for tensor in floats if len(tensor.layout.sizes) == 5]
    if not flat or not deep:
        return []
    first = deep[0]
    message = (
        f"`.to(memory_format=torch.channels_last)` raises on this model: `{first.name}` has 5 dimensions, as have"
        f" {len(deep)} of its tensors beside {len(flat)} with 4."
    )
    site = object_site(first.thing, first.module)
    evidence = f"`{flat[0].name}` of sizes {flat[0].layout.sizes} beside `{first.name}` of sizes {first.layout.sizes}"
    return [finding(__name__, Problem(site, message, _ADVICE, (evidence,), count=len(deep)))]
