"""SW407 refuses-layout: an operator raises for operands in some layout.

What it means
    For contiguous operands it gives a result, for the same values in another layout it raises. That does no harm: it is
    a note where the error says that layout is the matter, and a warning where its reader can't know.

Why it happens
    It checks, or calls something that does: `view` where it would have to copy, an operator whose last stride must be
    1. Whether a program meets it depends on what stands in front of the call: a transpose, a batch of one.

How to fix it
    `reshape` in the place of `view`; `x = x.contiguous()` in the wrapper if a copy is no matter. An error should say
    the argument, its strides, and what to call: `stridewise.expect_layout(x="contiguous")` writes such a one.

When to ignore it
    Where that is what the operator is meant to do.
"""

from stridewise.checks.operators.group import Group, is_clear
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity

SEVERITY = "note"
WAY = "op"
FIRES = (
    """
import torch

def op(x):
    return x.view(-1)

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)
QUIET = (
    """
import torch

def op(x):
    return x.reshape(-1)

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    error = group.failed[0].message or "an error"
    clear = is_clear(group.failed[0].message)
    message = f"`{group.op}` raises {group.where}: {error.rstrip('.')}."
    if not clear:
        message += " Nothing in the error says that layout is the matter."
    advice = (
        "Say so in its documentation, or make it take every layout: `reshape` in the place of `view`, or"
        " `x = x.contiguous()` first."
        if clear
        else "Check the layout first, and raise an error that names the argument, its strides and what to call."
    )
    if group.gradients:
        advice = "Begin the backward with `grad = grad.contiguous()`."
    severity: Severity | None = None if clear else "warning"
    problem = Problem(
        group.site, message, advice, group.evidence, severity, len(group.failed), details=(*group.operands, str(clear))
    )
    return finding(__name__, problem)
