"""SW206 strided-parameter: a parameter has gaps, repeats memory, or shares it with another parameter.

What it means
    A parameter is a view: a slice with gaps, a tensor that was expanded, overlapping windows. Or two parameters hold
    the same memory. An optimizer's step raises for an expanded one, and gives wrong values for windows; it updates
    memory twice that two parameters hold, once with each gradient. Of a buffer whose elements share memory it is said
    if it is saved with the model: `load_state_dict` raises for it, or loads wrong values.

Why it happens
    `nn.Parameter(base[:, ::2])` and `nn.Parameter(bias.expand(8))` keep the view. Two parameters with one memory come
    from `load_state_dict(assign=True)` of tied weights, or from `.data = other.data`. One Parameter under two names is
    a tie, and is fine.

How to fix it
    `p.data = p.data.clone()` gives it memory of its own and keeps its ties; a new Parameter would lose them. A tie is
    made again by assigning the Parameter itself: `head.weight = embed.weight`.

When to ignore it
    If the parameter is never trained, sent to other ranks, or saved.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, object_site
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, is_expanded, is_gapped, is_overlapping, share_elements

SEVERITY: Severity = "error"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.bias = torch.nn.Parameter(torch.randn(1).expand(8))
    return {"model": model}
""",
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.weight = torch.nn.Parameter(torch.randn(8, 8)[:, ::2])
    return {"model": model}
""",
    """
import torch

def subject():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight.data = model["embed"].weight.data
    return {"model": model}
""",
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.register_buffer("mask", torch.ones(1, 8).expand(8, 8))
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
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
""",
    """
import torch

def subject():
    return {"model": torch.nn.LSTM(4, 8, 2)}
""",
    """
import torch

def subject():
    model = torch.nn.Linear(4, 8)
    model.register_buffer("positions", torch.arange(8).expand((1, -1)))
    model.register_buffer("mask", torch.ones(1, 8).expand(8, 8), persistent=False)
    return {"model": model}
""",
)

_SHOWN = 5
"""Of the tensors that a finding stands for, as its evidence."""


def check(subject: Subject) -> list[Finding]:
    """One finding for each kind of view, and one for each pair of parameters with common memory."""
    return [finding(__name__, problem) for problem in (*_views(subject), *_pairs(subject))]


def _views(subject: Subject) -> Iterator[Problem]:
    shared = [tensor for tensor in subject.tensors if is_overlapping(tensor.layout)]
    trained = [tensor for tensor in shared if tensor.kind == "parameter" and tensor.requires_grad]
    frozen = [tensor for tensor in shared if tensor.kind == "parameter" and not tensor.requires_grad]
    buffers = [tensor for tensor in shared if tensor.kind == "buffer" and tensor.persistent]
    gapped = [tensor for tensor in subject.parameters() if tensor not in shared and is_gapped(tensor.layout)]
    if trained:
        what = "An optimizer's step raises" if is_expanded(trained[0].layout) else "An optimizer's step gives it"
        what += "." if is_expanded(trained[0].layout) else " wrong values, and nothing raises."
        yield _view(trained, f"several of its elements are one place in memory. {what}", "error", "trained")
    for tensors, details in ((frozen, "frozen"), (buffers, "buffers")):
        if tensors:
            loads = "raises for it" if is_expanded(tensors[0].layout) else "gives it wrong values"
            message = f"several of its elements are one place in memory. `load_state_dict` {loads}."
            yield _view(tensors, message, "warning", details)
    if gapped:
        message = (
            "a view with gaps. What writes to its memory as one piece, as fused optimizers and collectives of gloo do, "
            "writes between its elements."
        )
        yield _view(gapped, message, "warning", "gaps")


def _view(tensors: list[StateTensor], what: str, severity: Severity, details: str) -> Problem:
    first = tensors[0]
    more = f" (and {len(tensors) - 1} more)" if len(tensors) > 1 else ""
    if first.kind == "parameter":
        advice = f"`p.data = p.data.clone()`, for `{first.name}`{more} as `p`: it keeps ties, a new Parameter does not."
    else:
        advice = (
            f"Register a copy, made by `.clone()`, as `{first.name}`{more}; or register it with `persistent=False`."
        )
    return Problem(
        object_site(first.thing, first.module),
        f"{first.kind.capitalize()} `{first.name}`{more} is {described(first.layout)}: {what}",
        advice,
        tuple(f"`{tensor.name}`: {described(tensor.layout)}" for tensor in tensors[:_SHOWN]),
        severity,
        len(tensors),
        details=(details,),
    )


def _pairs(subject: Subject) -> Iterator[Problem]:
    """Parameters that are two objects with common memory, and are trained."""
    by_storage: dict[int, list[StateTensor]] = {}
    for tensor in subject.parameters():
        if tensor.device != "meta" and not tensor.layout.is_empty:
            by_storage.setdefault(tensor.storage, []).append(tensor)
    for tensors in by_storage.values():
        for one, other in _meeting(tensors):
            if one.requires_grad or other.requires_grad:
                yield _pair(one, other)


def _meeting(tensors: list[StateTensor]) -> Iterator[tuple[StateTensor, StateTensor]]:
    """Pairs with a common byte. A storage may hold thousands that follow each other."""
    open_: list[StateTensor] = []
    for tensor in sorted(tensors, key=lambda tensor: tensor.reach):
        start, _ = tensor.reach
        open_ = [before for before in open_ if before.reach[1] > start]
        yield from ((before, tensor) for before in open_ if share_elements(_in_bytes(before), _in_bytes(tensor)))
        open_.append(tensor)


def _in_bytes(tensor: StateTensor) -> Layout:
    given, size = tensor.layout, tensor.itemsize
    strides = tuple(stride * size for stride in given.strides)
    return Layout((*given.sizes, size), (*strides, 1), given.offset * size)


def _pair(one: StateTensor, other: StateTensor) -> Problem:
    are_equal = one.layout == other.layout and one.dtype == other.dtype
    tie = f"Tie them: assign the Parameter `{one.name}` itself to `{other.name}`, before the optimizer is made"
    clone = f"`p.data = p.data.clone()`, for `{other.name}` as `p`, if they are meant to differ"
    spans = f"bytes {one.reach[0]:,} to {one.reach[1]:,} and {other.reach[0]:,} to {other.reach[1]:,} of one storage"
    return Problem(
        object_site(f"parameters `{one.name}` and `{other.name}`", other.module),
        f"Parameters `{one.name}` and `{other.name}` are two objects with common memory: an optimizer updates it "
        "twice, once with each gradient.",
        f"{tie}; or {clone}." if are_equal else f"{clone[:1]}{clone[1:]}; or make one a view of the other in forward.",
        (spans, f"`{one.name}`: {described(one.layout)}", f"`{other.name}`: {described(other.layout)}"),
        details=(one.name, other.name),
    )
