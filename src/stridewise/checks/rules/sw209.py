"""SW209 conversion-raises: `.to(memory_format=torch.channels_last)` will raise for this model.

What it means
    The model has weights of 4 and of 5 dimensions. `Module.to` gives one format to all that have 4 or 5, and
    channels_last is for 4 dimensions only: "required rank 4 tensor to use channels_last format". What came before the
    first of 5 dimensions is converted by then, and stays so.

Why it happens
    It holds Conv2d beside Conv3d, or another layer with parameters or buffers of 5 dimensions.

How to fix it
    Give each parameter the format of its own number of dimensions:

        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        for p in model.parameters():
            p.data = p.data.contiguous(memory_format=formats.get(p.dim(), torch.contiguous_format))

    `torch.nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)` converts the weights of Conv2d
    alone.

When to ignore it
    If nobody converts the model.
"""

from __future__ import annotations

from collections.abc import Iterable

from stridewise.checks.preflight.facts import Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._formats import CHANNELS_LAST, CONVERT_EACH, format_of
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
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 4, 3)
    model.register_buffer("offsets", torch.zeros(1, 2, 2, 2, 2, dtype=torch.int64))
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
    return {"model": torch.nn.Conv3d(3, 4, 3)}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for a model that holds both and is not converted yet."""
    flat = [tensor for tensor in subject.tensors if tensor.layout.ndim == 4]
    deep = [tensor for tensor in subject.tensors if tensor.layout.ndim == 5]
    if any(format_of(tensor.layout) == CHANNELS_LAST[tensor.layout.ndim] for tensor in (*flat, *deep)):
        return []
    error = _tried(tensor.layout.sizes for tensor in (*flat, *deep)) if flat and deep else None
    if error is None:
        return []
    first = deep[0]
    problem = Problem(
        object_site(first.thing, first.module),
        f"`.to(memory_format=torch.channels_last)` raises on this model: beside tensors of 4 dimensions it has "
        f"{len(deep)} of 5, such as {first.thing}.",
        f"Convert each by its number of dimensions: `{CONVERT_EACH}`.",
        (
            f"`{flat[0].name}` of sizes {flat[0].layout.sizes} beside `{first.name}` of sizes {first.layout.sizes}",
            f"tried on tensors of these sizes without data: {error}",
        ),
        count=len(deep),
    )
    return [finding(__name__, problem)]


def _tried(sizes: Iterable[tuple[int, ...]]) -> str | None:
    """What `Module.to` raises for a model of such tensors; None if it takes them."""
    import torch

    model = torch.nn.Module()
    for number, each in enumerate(sizes):
        model.register_buffer(str(number), torch.empty(each, device="meta"))
    try:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None
