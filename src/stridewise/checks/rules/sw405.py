"""SW405 in-place-without-effect: an operator that writes into an operand leaves it as it was.

What it means
    When it is contiguous the operand is written, in place or as `out=`. In another layout it still holds afterwards
    what it held before, and nothing was raised.

Why it happens
    The wrapper calls `x.contiguous()` and hands the copy to a kernel that writes in place: for a contiguous tensor
    that is the tensor itself, for any other one the result goes to the copy, and is lost.

How to fix it
    Copy the result back, `x.copy_(dense)`, or write with the tensor's own strides, or refuse:
    `stridewise.expect_layout(x="contiguous")`.

When to ignore it
    Never: who calls it goes on with old values.
"""

from stridewise.checks.operators.group import Group
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding

SEVERITY = "error"
WAY = "op"
FIRES = (
    """
import torch

def op(x):
    dense = x.contiguous()
    dense.mul_(2)
    return x

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)
QUIET = (
    """
import torch

def op(x):
    return x.mul_(2)

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    what = next(fault.what for fault in group.faults if fault.verdict == "does nothing")
    message = f"`{group.op}` leaves `{what}` as it was {group.where}: what it should have written is lost."
    advice = f"Copy the result back, `{what}.copy_(dense)`, where it was computed in a contiguous copy."
    return finding(
        __name__, Problem(group.site, message, advice, group.evidence, count=len(group.failed), details=group.operands)
    )
