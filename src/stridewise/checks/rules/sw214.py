"""SW214 assign-flips-format: `load_state_dict(assign=True)` will change the layout of parameters.

What it means
    With `assign=True` the tensors of the state dict take the place of the model's, with their own strides: a
    channels_last model becomes contiguous, or the other way round, and weights that were tied are two.

Why it happens
    A checkpoint holds the strides that its tensors had when it was saved. Without `assign` values are copied into the
    model's own memory, which keeps its layout.

How to fix it
    Call `model.to(memory_format=…)` after the load, and make the optimizer after that; tie weights again.

When to ignore it
    If the checkpoint's layout is the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import layout_of, object_site, strided
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "warning"
WAY = "preflight"
FIRES = (
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
    model = torch.nn.Conv2d(3, 8, 3)
    return {"model": model, "state_dict": torch.nn.Conv2d(3, 8, 3).state_dict()}
""",
)


def check(subject: Subject) -> list[Finding]:
    """One finding for all whose strides change, and one for each tie that is lost."""
    if subject.state_dict is None:
        return []
    problems = [*_flipped(subject, subject.state_dict), *_untied(subject, subject.state_dict)]
    return [finding(__name__, problem) for problem in problems]


def _flipped(subject: Subject, given: Mapping[str, Any]) -> Iterator[Problem]:
    changed: list[tuple[StateTensor, str]] = []
    for tensor in subject.tensors:
        layout = _layout(given.get(tensor.name))
        if layout is not None and layout.sizes == tensor.layout.sizes and apart(tensor.layout, layout) == "yes":
            changed.append((tensor, f"`{tensor.name}`, {strided(tensor.layout)}, gets strides {layout.strides}"))
    if changed:
        first = changed[0][0]
        message = (
            f"`load_state_dict(assign=True)` changes the strides of {len(changed)} tensors, such as `{first.name}`:"
            " those of the state dict take their place."
        )
        advice = (
            "Call `model.to(memory_format=…)` after the load, before the optimizer is made; or load without `assign`."
        )
        evidence = tuple(text for _, text in changed[:3])
        yield Problem(
            object_site(first.thing, first.module), message, advice, evidence, count=len(changed), details=("strides",)
        )


def _untied(subject: Subject, given: Mapping[str, Any]) -> Iterator[Problem]:
    for tensor in subject.tensors:
        places = {_place(given[name]) for name in tensor.names if name in given}
        if len(places) > 1:
            names = " and ".join(f"`{name}`" for name in tensor.names)
            message = (
                f"{names} are one parameter, and two tensors in the state dict: with `assign=True` the tie is lost."
            )
            advice = f"Tie them again after the load, assigning `{tensor.names[0]}` to `{tensor.names[1]}`."
            yield Problem(object_site(tensor.thing, tensor.module), message, advice, details=("tie",))


def _layout(value: Any) -> Any:
    import torch

    return layout_of(value) if isinstance(value, torch.Tensor) else None


def _place(value: Any) -> Any:
    import torch

    return value.data_ptr() if isinstance(value, torch.Tensor) and not value.is_meta else id(value)
