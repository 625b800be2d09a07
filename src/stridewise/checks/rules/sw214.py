"""SW214 assign-flips-format: `load_state_dict(assign=True)` will change the layout of parameters, or lose a tie.

What it means
    With `assign=True` the tensors of the state dict take the place of the model's, with their own strides: a
    channels_last model becomes contiguous, or the other way round. Weights that were tied become two Parameters, even
    if the state dict has one tensor under both names: an optimizer then updates their memory twice (SW206).

Why it happens
    A checkpoint holds the strides that its tensors had when it was saved; safetensors only knows contiguous ones.
    Without `assign`, values are copied into the model's own memory, which keeps its layout and its ties.

How to fix it
    Load without `assign`. Where it must be, as for a model on the meta device: after the load, tie weights again,
    `head.weight = embed.weight`, and call `model.to(memory_format=…)`; then make the optimizer.

When to ignore it
    If the checkpoint's layout is the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, layout_of, object_site
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, name

if TYPE_CHECKING:
    from torch import nn

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return {"model": model, "state_dict": model.state_dict()}
""",
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    return {"model": model, "state_dict": torch.nn.Conv2d(3, 8, 3).state_dict()}
""",
)
QUIET = (
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 1)
    return {"model": model, "state_dict": torch.nn.Conv2d(3, 8, 1).to(memory_format=torch.channels_last).state_dict()}
""",
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 3)
    return {"model": model, "state_dict": torch.nn.Conv2d(3, 8, 3).state_dict()}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for all whose strides change, and one for all ties that are lost, if that dict is assigned."""
    if subject.state_dict is None:
        return []
    problems = [*_flipped(subject, subject.state_dict), *_untied(subject, subject.state_dict)]
    return [finding(__name__, problem) for problem in problems]


def check_state_dict(model: nn.Module, state_dict: Mapping[str, Any], *, assign: bool = False) -> list[Finding]:
    """What `model.load_state_dict(state_dict, assign=assign)` will do to layouts and ties; nothing without `assign`."""
    from stridewise.checks.preflight.collect import collect

    if not assign:
        return []
    return check(collect(model, (), None, has_ranks=False, state_dict=state_dict, observed=None))


def _flipped(subject: Subject, given: Mapping[str, Any]) -> Iterator[Problem]:
    changed: list[tuple[StateTensor, Layout]] = []
    for tensor in subject.tensors:
        layout = _layout(given.get(tensor.name))
        if layout is not None and layout.sizes == tensor.layout.sizes and apart(tensor.layout, layout) == "yes":
            changed.append((tensor, layout))
    if changed:
        (first, layout), more = changed[0], f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        kinds = name(first.layout), name(layout)
        becomes = f"strides {layout.strides}" if kinds[0] == kinds[1] else f"{kinds[1]}, strides {layout.strides}"
        yield Problem(
            object_site(first.thing, first.module),
            f"With `load_state_dict(assign=True)`, {first.thing}{more} gets the strides that the state dict has: "
            f"{described(first.layout)} becomes {becomes}.",
            "Load without `assign`, or call `model.to(memory_format=…)` after the load and make the optimizer then.",
            tuple(
                f"`{each.name}`: {described(each.layout)}; in the state dict {described(new)}"
                for each, new in changed[:3]
            ),
            count=len(changed),
            details=("strides",),
        )


def _untied(subject: Subject, given: Mapping[str, Any]) -> Iterator[Problem]:
    lost = [tensor for tensor in subject.parameters() if len(tensor.names) > 1 and not _keeps(tensor, given)]
    if lost:
        first = lost[0]
        names = " and ".join(f"`{each}`" for each in first.names)
        held = [each for each in first.names if each in given]
        yield Problem(
            object_site(first.thing, first.module),
            f"{names} are one Parameter. With `load_state_dict(assign=True)` the tie is lost, as "
            + ("each gets a Parameter of its own." if len(held) > 1 else f"`{held[0]}` alone is replaced."),
            f"Tie them again after the load: assign the Parameter `{held[0]}` itself to the other name.",
            tuple(f"in the state dict: {', '.join(f'`{n}`' for n in each.names if n in given)}" for each in lost[:3]),
            count=len(lost),
            details=("tie",),
        )


def _keeps(tensor: StateTensor, given: Mapping[str, Any]) -> bool:
    """Whether one Parameter stays under all names: none is replaced, or all are by one that is a Parameter."""
    from torch.nn import Parameter

    new = [given.get(each) for each in tensor.names]
    return all(each is None for each in new) or (isinstance(new[0], Parameter) and all(each is new[0] for each in new))


def _layout(value: Any) -> Layout | None:
    import torch

    return layout_of(value) if isinstance(value, torch.Tensor) else None
