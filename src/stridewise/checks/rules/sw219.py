"""SW219 ddp-gradient-strides: DistributedDataParallel will warn that gradient strides do not match its buckets.

What it means
    "Grad strides do not match bucket view strides": a gradient has another layout than its place in a bucket, which is
    that of the parameter. Where only dimensions of size 1 differ, elements lie in the same order: the warning means
    nothing. Where others do, each step copies the gradient from one order into the other.

Why it happens
    Convolutions give their weight's gradient in the format in which they ran: channels_last, if the images were, though
    the weight is contiguous. For 1x1 and depthwise weights both formats are the same memory with other strides, and
    autograd leaves it at that. All other gradients it brings into the order of the parameter, unless `.grad` was
    assigned before, or by a hook.

How to fix it
    Convert the model with the images, `model.to(memory_format=torch.channels_last)`, before it is wrapped; or keep the
    images contiguous. A gradient that was assigned: `p.grad = None` before the backward.

When to ignore it
    Where only dimensions of size 1 differ: the gradients are right, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from stridewise import layout
from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, contiguous_strides, is_non_overlapping_and_dense

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
            self.c = torch.nn.Conv2d(8, 8, 5, padding=2, groups=8)

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


_SHOWN = 3


class _Unlike(Struct, frozen=True):
    """A parameter whose gradient has other strides than its place in a bucket."""

    tensor: StateTensor
    gradient: Layout
    bucket: Layout
    how: Literal["size 1", "yes"]


def check(subject: Subject) -> list[Finding]:
    """One finding for all that differ in dimensions of size 1 only, and one for all others."""
    if not subject.has_ranks or subject.wrapper in ("FSDP1", "FSDP2"):
        return []
    unlike = [each for tensor in subject.parameters() if tensor.requires_grad for each in _unlike(tensor)]
    groups = [each for each in unlike if each.how == "yes"], [each for each in unlike if each.how == "size 1"]
    problems = [make(subject, group) for make, group in zip((_real, _harmless), groups, strict=True) if group]
    return [finding(__name__, problem) for problem in problems]


def _unlike(tensor: StateTensor) -> Iterator[_Unlike]:
    """By the gradient that it has, else by the one that a backward gave it."""
    bucket = bucket_of(tensor.layout)
    kept = apart(bucket, tensor.gradient) if tensor.gradient is not None else "no"
    if tensor.gradient is not None and kept == "yes":
        yield _Unlike(tensor, tensor.gradient, bucket, kept)
    elif tensor.observed is not None and (how := apart(bucket, tensor.observed)) != "no":
        yield _Unlike(tensor, tensor.observed, bucket, how)


def bucket_of(parameter: Layout) -> Layout:
    """The strides that DistributedDataParallel gives a gradient's place in a bucket."""
    if is_non_overlapping_and_dense(parameter):
        return Layout(parameter.sizes, parameter.strides)
    return Layout(parameter.sizes, contiguous_strides(parameter.sizes))


def _real(subject: Subject, group: list[_Unlike]) -> Problem:
    first = group[0]
    message = (
        f"The gradient of {_named(group)}, strides {first.gradient.strides}, lies in another order than the parameter,"
        f" {strided(first.tensor.layout)}: DistributedDataParallel warns of it, and copies it into the other order at"
        " every step that keeps it."
    )
    advice = "`p.grad = None`, or `optimizer.zero_grad()`, before the backward: autograd makes it in the right order."
    return _problem(group, message, advice, None)


def _harmless(subject: Subject, group: list[_Unlike]) -> Problem:
    first = group[0]
    wraps = "DistributedDataParallel" if subject.wrapper == "DDP" else "DistributedDataParallel, if it wraps the model,"
    message = (
        f"{wraps} will warn that gradient strides {first.gradient.strides} of {_named(group)} do not match its bucket,"
        f" {first.bucket.strides}. They differ where a size is 1 only: the gradients are right, and nothing is lost."
        f"{_cause(subject, first.tensor)}"
    )
    advice = (
        "Nothing needs to be done. `model.to(memory_format=torch.channels_last)` before the model is wrapped, or"
        " contiguous images, silence it."
    )
    return _problem(group, message, advice, "note")


def _cause(subject: Subject, tensor: StateTensor) -> str:
    """What the module was called with, if that is in another order than its weight."""
    given = subject.inputs.get(tensor.module)
    if given is None or layout.is_contiguous(given):
        return ""
    return f" `{tensor.module}` got an input that is {layout.name(given)}, {strided(given)}."


def _named(group: list[_Unlike]) -> str:
    more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
    return f"`{group[0].tensor.name}`{more}"


def _problem(group: list[_Unlike], message: str, advice: str, severity: Severity | None) -> Problem:
    evidence = tuple(
        f"`{each.tensor.name}`: {strided(each.tensor.layout)}; its gradient has strides {each.gradient.strides}"
        for each in group[:_SHOWN]
    )
    site = object_site(group[0].tensor.thing, group[0].tensor.module)
    return Problem(site, message, advice, evidence, severity, len(group), details=(group[0].how,))
