"""SW219 ddp-gradient-strides: DistributedDataParallel will warn that gradient strides do not match its buckets.

What it means
    "Grad strides do not match bucket view strides": a gradient came out of the backward in another layout than its
    parameter has. Each step copies it. Where only dimensions of size 1 differ, the copy is a plain one, and nothing is
    lost; where others do, it is a transpose.

Why it happens
    Convolutions give their weight's gradient in the format in which they ran: channels_last, if the images were, though
    the weight is contiguous. For 1x1 and depthwise weights both formats are the same memory with other strides.

How to fix it
    Convert the model with the images, `model.to(memory_format=torch.channels_last)`, before it is wrapped; or keep the
    images contiguous.

When to ignore it
    Where only dimensions of size 1 differ: the gradients are right.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    import tempfile
    import torch.distributed as dist

    class Permuted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.c = torch.nn.Conv2d(8, 8, 1)

        def forward(self, x):
            return self.c(x.permute(0, 3, 1, 2))

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(Permuted())
    return {"model": model, "sample": (torch.randn(2, 6, 6, 8),)}
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
)


def check(subject: Subject) -> list[Finding]:
    """One finding for each parameter whose gradient comes in another layout, where several processes train."""
    if not subject.has_ranks or subject.wrapper in ("FSDP1", "FSDP2"):
        return []
    found = []
    for tensor in subject.parameters():
        if tensor.observed is None or (how := apart(tensor.layout, tensor.observed)) == "no":
            continue
        harmless = how == "size 1"
        says = f"`{tensor.name}`, {strided(tensor.layout)}, gets gradients with strides {tensor.observed.strides}"
        message = (
            f"{says}: they differ where a size is 1 only. DistributedDataParallel warns of it, and the gradients"
            " are right."
            if harmless
            else f"{says}: DistributedDataParallel copies each of them into another order, at every step."
        )
        advice = (
            "Nothing needs to be done; `model.to(memory_format=torch.channels_last)` before wrapping, or"
            " contiguous input,"
            " silences it."
            if harmless
            else "Convert the model together with its input, before it is wrapped; or give it contiguous input."
        )
        evidence = "the gradient of a trial's backward was compared with the parameter"
        severity: Severity | None = "note" if harmless else None
        site = object_site(tensor.thing, tensor.module)
        found.append(finding(__name__, Problem(site, message, advice, (evidence,), severity)))
    return found
