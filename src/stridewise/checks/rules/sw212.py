"""SW212 unsaveable-tensors: safetensors will refuse tensors of this model.

What it means
    `safetensors.torch.save_file(model.state_dict(), file)` raises: "You are trying to save a non contiguous tensor",
    or "Some tensors share memory". So do other formats that write a tensor's memory as it lies. `torch.save` takes
    them all and keeps their strides.

Why it happens
    Parameters are channels_last, or transposed views as `nn.Parameter(w.t())` makes them; or a buffer is a view of a
    parameter. Tied weights share memory too; that is left out here, as what saves such models knows of it.

How to fix it
    Save `{name: t.clone(memory_format=torch.contiguous_format) for name, t in model.state_dict().items()}`; loading it
    into the model keeps the model's strides. `safetensors.torch.save_model(model, file)` does that by itself for
    dense parameters and for ties, and `save_pretrained` of transformers too.

When to ignore it
    If the model is saved otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import is_contiguous

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.weight = torch.nn.Parameter(torch.randn(4, 8).t())
    return {"model": model}
""",
    """
import torch

def subject():
    model = torch.nn.Linear(8, 8)
    model.register_buffer("first", model.weight.detach()[:2])
    return {"model": model}
""",
    """
import torch

def subject():
    return {"model": torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)}
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
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
""",
)

_ADVICE = (
    "Save copies: `save_file({name: t.clone(memory_format=torch.contiguous_format) for name, t in"
    " model.state_dict().items()}, file)`; loading them keeps the model's strides."
)


def check(subject: Subject) -> list[Finding]:
    """One finding for all that are not contiguous, and one for all that lie over each other."""
    saved = [tensor for tensor in subject.tensors if tensor.persistent]
    return [finding(__name__, problem) for problem in (*_strided(saved), *_shared(saved))]


def _strided(saved: list[StateTensor]) -> Iterator[Problem]:
    found = [tensor for tensor in saved if not is_contiguous(tensor.layout)]
    if found:
        first = found[0]
        yield Problem(
            object_site(first.thing, first.module),
            f"`safetensors.torch.save_file` raises for {len(found)} of {len(saved)} tensors of the state dict: they "
            f"are not contiguous, such as {first.thing}, {strided(first.layout)}.",
            _ADVICE,
            tuple(f"`{tensor.name}`: {strided(tensor.layout)}" for tensor in found[:3]),
            count=len(found),
            details=("strided",),
        )


def _shared(saved: list[StateTensor]) -> Iterator[Problem]:
    """As safetensors has it, tensors share memory whose bytes, from the first to the last, overlap."""
    by_storage: dict[int, list[StateTensor]] = {}
    for tensor in saved:
        if is_contiguous(tensor.layout) and not tensor.layout.is_empty and tensor.device != "meta":
            by_storage.setdefault(tensor.storage, []).append(tensor)
    pairs = [pair for tensors in by_storage.values() for pair in _overlapping(tensors)]
    if pairs:
        one, other = pairs[0]
        yield Problem(
            object_site(other.thing, other.module),
            f"`safetensors.torch.save_file` raises: {one.thing} and {other.thing} share memory"
            f"{f', as {len(pairs) - 1} more pairs do' if len(pairs) > 1 else ''}.",
            _ADVICE,
            tuple(
                f"`{one.name}`: bytes {one.reach[0]:,} to {one.reach[1]:,} of one storage; "
                f"`{other.name}`: {other.reach[0]:,} to {other.reach[1]:,}"
                for one, other in pairs[:3]
            ),
            count=len(pairs),
            details=("shared",),
        )


def _overlapping(tensors: list[StateTensor]) -> Iterator[tuple[StateTensor, StateTensor]]:
    by_start = sorted(tensors, key=lambda tensor: tensor.reach)
    for at, one in enumerate(by_start):
        for other in by_start[at + 1 :]:
            if other.reach[0] >= one.reach[1]:
                break
            yield one, other
