"""SW221 buffer-view: a buffer that is a transposed view hands its layout on to what it meets.

What it means
    The buffer is dense, and its dimensions lie in another order in memory. Elementwise operators take the order of
    their first operand: `buffer + x` is transposed like the buffer, and what follows copies it.

Why it happens
    `register_buffer("table", t.t())` keeps the view.

How to fix it
    `register_buffer("table", t.t().contiguous())`, a copy once; or let it be the second operand.

When to ignore it
    If it is used in matrix products or for indexing only.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import name

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.register_buffer("table", torch.randn(8, 4).t())
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
    model = torch.nn.Linear(4, 8)
    model.register_buffer("positions", torch.arange(16).expand((1, -1)))
    return {"model": model}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for each such buffer."""
    found = []
    for tensor in subject.tensors:
        if tensor.kind != "buffer" or name(tensor.layout) != "permuted":
            continue
        message = (
            f"Buffer `{tensor.name}`, {strided(tensor.layout)}, is a transposed view: where it is the first operand"
            " of an"
            " elementwise operator, the result is transposed like it."
        )
        advice = "Register a copy, `.contiguous()`, or let it be the second operand."
        site = object_site(tensor.thing, tensor.module)
        found.append(finding(__name__, Problem(site, message, advice, (f"`{tensor.name}` is permuted, and dense",))))
    return found
