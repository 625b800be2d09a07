"""SW210 mixed-formats: some convolution weights of a model are channels_last, and others are not.

What it means
    A convolution runs in channels_last as soon as its input or its weight is. Where the weights of a model differ, one
    of the two is converted at the calls, each time.

Why it happens
    A part of the model was converted, or replaced after the conversion; a checkpoint was loaded with `assign=True`.

How to fix it
    Convert the model as a whole, `model.to(memory_format=torch.channels_last)`, and make the optimizer after that.

When to ignore it
    If a recording shows that this part is faster as it is.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import MemoryFormat, is_contiguous

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3))
    model[0].to(memory_format=torch.channels_last)
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
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 1), torch.nn.Conv2d(4, 4, 3, groups=4))
    return {"model": model.to(memory_format=torch.channels_last)}
""",
)


_FORMATS: dict[int, MemoryFormat] = {4: "channels_last", 5: "channels_last_3d"}


def check(subject: Subject) -> list[Finding]:
    """One finding for a model that has both."""
    found = []
    for ndim, name in _FORMATS.items():
        weights = [t for t in subject.parameters() if len(t.layout.sizes) == ndim and "Conv" in t.module_type]
        last = [weight for weight in weights if _is_only(weight, name, "contiguous")]
        first = [weight for weight in weights if _is_only(weight, "contiguous", name)]
        if last and first:
            few, many = sorted((last, first), key=len)
            message = (
                f"{len(last)} convolution weights are {name} and {len(first)} are contiguous, such as"
                f" `{few[0].name}`: activations are converted where they meet."
            )
            evidence = tuple(f"`{weight.name}`, {strided(weight.layout)}" for weight in (few[0], many[0]))
            advice = f"Convert the whole model: `model.to(memory_format=torch.{name})`, before the optimizer is made."
            site = object_site(few[0].thing, few[0].module)
            found.append(finding(__name__, Problem(site, message, advice, evidence, count=len(few))))
    return found


def _is_only(weight: StateTensor, name: MemoryFormat, other: MemoryFormat) -> bool:
    """Whether it is one format and not the other: of 1x1 and depthwise weights both may hold."""
    return is_contiguous(weight.layout, name) and not is_contiguous(weight.layout, other)
