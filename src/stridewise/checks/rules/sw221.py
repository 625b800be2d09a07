"""SW221 buffer-view: a buffer that is a transposed view hands its layout on to what it meets.

What it means
    The buffer is dense, and its dimensions lie in another order in memory. Elementwise operators take the order of
    their first operand: the result of `buffer + x` is transposed like the buffer, and what follows copies it or runs
    slower. A channels_last buffer is one where the model's convolutions are not channels_last.

Why it happens
    `register_buffer("table", t.t())` keeps the view.

How to fix it
    `register_buffer("table", t.t().contiguous())`, a copy once; or let it be the second operand.

When to ignore it
    If it is used in matrix products or for indexing only.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._formats import CHANNELS_LAST, format_of
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, contiguous_strides, elementwise, is_non_overlapping_and_dense, memory_order

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 4, 3)
    model.register_buffer("mean", torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last))
    return {"model": model}
""",
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
    is_converted = any(_is_channels_last(tensor) for tensor in subject.parameters())
    found = []
    for tensor in subject.tensors:
        given = tensor.layout
        if tensor.kind != "buffer" or (is_converted and _is_channels_last(tensor)) or not _spreads(given):
            continue
        problem = Problem(
            object_site(tensor.thing, tensor.module),
            f"Buffer `{tensor.name}`, {strided(given)}, is a transposed view: where it is the first operand of an "
            "elementwise operator, the result is transposed like it.",
            "Register a copy, `.contiguous()`, or let it be the second operand.",
            (
                f"first with a contiguous tensor of its sizes: the result has strides {_first(given).strides}, "
                f"and {_second(given).strides} the other way round",
            ),
        )
        found.append(finding(__name__, problem))
    return found


def _is_channels_last(tensor: StateTensor) -> bool:
    return tensor.layout.ndim in CHANNELS_LAST and format_of(tensor.layout) == CHANNELS_LAST[tensor.layout.ndim]


def _spreads(given: Layout) -> bool:
    """Whether a result has another order with it as the first operand than as the second."""
    if given.is_empty or not is_non_overlapping_and_dense(given):
        return False
    return memory_order(_first(given)) != memory_order(_second(given))


def _first(given: Layout) -> Layout:
    return elementwise([given, Layout(given.sizes, contiguous_strides(given.sizes))])


def _second(given: Layout) -> Layout:
    return elementwise([Layout(given.sizes, contiguous_strides(given.sizes)), given])
