"""SW212 unsaveable-tensors: safetensors will refuse tensors of this model.

What it means
    `safetensors.torch.save_file` takes contiguous tensors with memory of their own. For others it raises: "You are
    trying to save a non contiguous tensor", or that some tensors share memory.

Why it happens
    Parameters are channels_last, or transposed views as `nn.Parameter(w.t())` makes them; or two names lead to one
    memory, as of tied weights.

How to fix it
    `safetensors.torch.save_model(model, file)`, which makes them contiguous and leaves ties out, and on loading keeps
    the model's strides; or make the copies yourself:
    `save_file({name: t.contiguous() for name, t in model.state_dict().items()}, file)`.

When to ignore it
    If the model is saved otherwise.
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


def check(subject: Subject) -> list[Finding]:
    """One finding for a model that holds some."""
    found = [tensor for tensor in subject.tensors if tensor.persistent and not is_contiguous(tensor.layout)]
    if not found:
        return []
    first = found[0]
    message = (
        f"`safetensors.torch.save_file` raises for {len(found)} of {len(subject.tensors)} tensors that are not"
        " contiguous,"
        f" such as `{first.name}`."
    )
    advice = "Use `safetensors.torch.save_model(model, file)`, or make each tensor `.contiguous()` in what is saved."
    evidence = f"`{first.name}`, {strided(first.layout)}"
    return [
        finding(
            __name__, Problem(object_site(first.thing, first.module), message, advice, (evidence,), count=len(found))
        )
    ]
