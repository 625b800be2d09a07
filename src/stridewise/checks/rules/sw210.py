"""SW210 mixed-weights: some convolution weights of a model are channels_last, and others are not.

What it means
    A convolution runs in channels_last as soon as its input or its weight is. Where the weights of a model differ, the
    channels_last ones turn all that follows, and the others are converted at each call. Weights that are both, of 1x1
    and depthwise convolutions, are not looked at.

Why it happens
    A part of the model was converted, or replaced after the conversion; a conversion raised half-way (SW209); a
    checkpoint was loaded with `assign=True` (SW214).

How to fix it
    Convert the model as a whole, `model.to(memory_format=torch.channels_last)`, and make the optimizer after that.

When to ignore it
    If a recording shows that the model is faster as it is.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._formats import CHANNELS_LAST, CONVERT_EACH, format_of
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity

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


def check(subject: Subject) -> list[Finding]:
    """One finding for each number of dimensions of which a model has both."""
    found = []
    ranks = {tensor.layout.ndim for tensor in subject.parameters()} & CHANNELS_LAST.keys()
    for ndim in sorted(ranks):
        weights = [each for each in subject.parameters() if each.layout.ndim == ndim and _is_weight(subject, each)]
        last = [weight for weight in weights if format_of(weight.layout) == CHANNELS_LAST[ndim]]
        first = [weight for weight in weights if format_of(weight.layout) == "contiguous"]
        if last and first:
            found.append(finding(__name__, _problem(CHANNELS_LAST[ndim], last, first, whole=len(ranks) == 1)))
    return found


def _is_weight(subject: Subject, tensor: StateTensor) -> bool:
    """Whether a convolution uses it."""
    from torch.nn.modules.conv import _ConvNd

    if subject.model is None or "Conv" in tensor.module_type:
        return "Conv" in tensor.module_type
    return isinstance(subject.model.get_submodule(tensor.module), _ConvNd)


def _problem(name: str, last: list[StateTensor], first: list[StateTensor], *, whole: bool) -> Problem:
    few, many = sorted((last, first), key=len)
    convert = f"model.to(memory_format=torch.{name})" if whole else CONVERT_EACH
    return Problem(
        object_site(few[0].thing, few[0].module),
        f"{len(last)} convolution weight{' is' if len(last) == 1 else 's are'} {name} and {len(first)} "
        f"{'is' if len(first) == 1 else 'are'} contiguous, such as {last[0].thing} and {first[0].thing}: convolutions "
        f"give {name} after the first of those, and convert the weights of the others at each call.",
        f"Convert the whole model, before the optimizer is made: `{convert}`.",
        tuple(f"`{weight.name}`: {strided(weight.layout)}" for weight in (*few[:3], many[0])),
        count=len(few),
        details=(name,),
    )
