"""SW211 library-call-raises: functions of torch's own raise for parameters of this model.

What it means
    The model has parameters that are not contiguous. Some functions of torch take a `view` of each, and raise for
    those: `torch.nn.init.orthogonal_`, `torch.nn.utils.parameters_to_vector`, unstructured pruning of
    `torch.nn.utils.prune`, and the step of `torch.optim.LBFGS`. It is a warning if LBFGS is the optimizer that was
    given; else it is a note, in case one of them will be called.

Why it happens
    `.to(memory_format=torch.channels_last)` was called before the initialisation, or before code that flattens all
    parameters; or a weight was made as `nn.Parameter(w.t())`.

How to fix it
    Initialise and prune first, and convert then; flatten with `torch.cat([p.reshape(-1) for p in parameters])`. A
    model that LBFGS trains stays contiguous: `p.data = p.data.contiguous()`.

When to ignore it
    If none of them is called on the model.
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise import layout
from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site, strided
from stridewise.findings import Finding, Severity
from stridewise.layout import Layout, LayoutError

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
import torch

def subject():
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    return {"model": model, "optimizer": torch.optim.LBFGS(model.parameters())}
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


def _is_strided(given: Layout) -> bool:
    return not layout.is_contiguous(given)


def _is_permuted(given: Layout) -> bool:
    """What `torch.empty_like` makes of it, as a mask, is not contiguous either."""
    return not layout.is_contiguous(layout.clone(given))


def _has_strided_gradient(given: Layout) -> bool:
    """A gradient takes the strides of its parameter if that is dense, and is contiguous if not (`AccumulateGrad`)."""
    return layout.is_non_overlapping_and_dense(given) and not layout.is_contiguous(given)


def _lacks_matrix(given: Layout) -> bool:
    """It can't be viewed as a matrix of its first dimension and the rest."""
    if given.ndim < 2 or given.is_empty:
        return False
    try:
        layout.view(given, (given.sizes[0], layout.numel(given) // given.sizes[0]))
    except LayoutError:
        return True
    return False


RAISES: dict[str, Callable[[Layout], bool]] = {
    "torch.nn.init.orthogonal_": _lacks_matrix,
    "torch.nn.utils.parameters_to_vector": _is_strided,
    "torch.nn.utils.prune.global_unstructured": _is_strided,
    "torch.nn.utils.prune.l1_unstructured": _is_permuted,
    "torch.nn.utils.prune.random_unstructured": _is_permuted,
    "torch.optim.LBFGS": _has_strided_gradient,
}
"""The parameters that each raises for. A test calls all functions of these modules, to see that it is these."""


def check(subject: Subject) -> list[Finding]:
    """One finding for a model with such parameters, and one for each LBFGS that has some."""
    found = [finding(__name__, problem) for problem in _optimizers(subject)]
    refused = {name: [each for each in subject.parameters() if raises(each.layout)] for name, raises in RAISES.items()}
    calls = [name for name, tensors in refused.items() if tensors and name != "torch.optim.LBFGS"]
    if not calls:
        return found
    tensors = max(refused.values(), key=len)
    first = tensors[0]
    names = ", ".join(f"`{name}`" for name in calls)
    more = f" (and {len(tensors) - 1} more)" if len(tensors) > 1 else ""
    problem = Problem(
        object_site(first.thing, first.module),
        f"{first.kind.capitalize()} `{first.name}`{more}, {strided(first.layout)}, is not contiguous. These raise for "
        f"it: {names}.",
        f"{_ahead_of_them(tensors)}; flatten with `torch.cat([p.reshape(-1) for p in model.parameters()])`.",
        (
            *(f"`{each.name}`: {strided(each.layout)}" for each in tensors[:3]),
            *(
                f"`{name}` raises for {len(refused[name])} of these"
                for name in calls
                if len(refused[name]) < len(tensors)
            ),
        ),
        count=len(tensors),
    )
    return [*found, finding(__name__, problem)]


def _ahead_of_them(tensors: list[StateTensor]) -> str:
    if any(layout.suggested_format(tensor.layout) != "contiguous" for tensor in tensors):
        return "Call them before the conversion"
    return "`p.data = p.data.contiguous()` for each parameter, before they are called"


def _optimizers(subject: Subject) -> list[Problem]:
    raises = RAISES["torch.optim.LBFGS"]
    problems = []
    for optimizer in subject.optimizers:
        if optimizer.name != "LBFGS":
            continue
        tensors = [
            each
            for each in subject.parameters()
            if each.requires_grad and not optimizer.parameters.isdisjoint(each.names) and raises(each.layout)
        ]
        if tensors:
            first = tensors[0]
            problem = Problem(
                object_site(first.thing, first.module),
                f"The step of LBFGS raises for {_counted(tensors)} that {'is' if len(tensors) == 1 else 'are'} not "
                f"contiguous, such as `{first.name}`, {strided(first.layout)}: it takes a view of each gradient.",
                "`p.data = p.data.contiguous()` for each of its parameters, before the first backward.",
                tuple(f"`{each.name}`: {strided(each.layout)}" for each in tensors[:3]),
                severity="warning",
                count=len(tensors),
                details=("LBFGS",),
            )
            problems.append(problem)
    return problems


def _counted(tensors: list[StateTensor]) -> str:
    return f"{len(tensors)} parameter{'' if len(tensors) == 1 else 's'}"
