"""SW220 fsdp-refuses: `fully_shard` does not take parameters that are not contiguous.

What it means
    FSDP2, `torch.distributed.fsdp.fully_shard`, raises NotImplementedError for a model with such parameters:
    "FSDP does not support non-contiguous parameters yet". To convert the model afterwards does not help:
    `model.to(memory_format=torch.channels_last)` raises then, with a message about `view`. FSDP1 takes them and keeps
    their format.

Why it happens
    The model was converted to channels_last, or holds transposed views, before it was sharded.

How to fix it
    Make them contiguous, `p.data = p.data.contiguous()`, and keep the images in channels_last: one operand in that
    format is enough for a convolution to run in it.

When to ignore it
    If the model is not given to FSDP2.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import is_contiguous

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch
import torch.distributed as dist

def subject():
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    return {"model": model, "process_group": dist.group.WORLD}
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
    """One finding for a model that ranks will train, of what nothing has wrapped or sharded yet."""
    if not subject.has_ranks or subject.wrapper in ("DDP", "FSDP1"):
        return []
    found = [tensor for tensor in subject.parameters() if not is_contiguous(tensor.layout)]
    if not found:
        return []
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    problem = Problem(
        object_site(first.thing, first.module),
        f"If this model is sharded with `fully_shard` (FSDP2), that raises for `{first.name}`{more},"
        f" {strided(first.layout)}: it takes contiguous parameters only.",
        "`p.data = p.data.contiguous()` for each of them; images in channels_last are enough for convolutions.",
        tuple(f"`{tensor.name}`: {strided(tensor.layout)}" for tensor in found[:3]),
        count=len(found),
    )
    return [finding(__name__, problem)]
