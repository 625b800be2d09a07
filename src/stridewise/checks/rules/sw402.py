"""SW402 writes-outside: an operator writes memory that is not its operand's, or reads past a contiguous one.

What it means
    Around each operand, and between its elements where it has gaps, lay values that belong to nobody. After the run
    some of them were others; or an operand that is only read when it is contiguous was written. Or the operands were
    contiguous, and the result changed with the values around them.

Why it happens
    A kernel writes as many elements as the tensor has, one behind the other, into a view whose elements lie apart: the
    neighbours in the same storage are overwritten, and behind an expanded tensor whatever the heap holds there. Or it
    writes or reads past its end whatever the layout.

How to fix it
    Write into memory of its own, and copy from there into the operand; or give the kernel the strides. Arguments that
    are written can be held to a layout: `stridewise.expect_layout(out="contiguous")`.

When to ignore it
    Never: the memory is somebody else's.
"""

from stridewise.checks.operators.group import Group
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding

SEVERITY = "error"
WAY = "op"
FIRES = (
    """
import ctypes
import torch

def op(x, out):
    x = x.contiguous()
    ctypes.memmove(out.data_ptr(), x.data_ptr(), 4 * x.numel())
    return out

def op_sample():
    return torch.arange(12.0).reshape(3, 4), torch.zeros(3, 4)
""",
)
QUIET = (
    """
import torch

def op(x, out):
    return torch.mul(x, 2, out=out)

def op_sample():
    return torch.arange(12.0).reshape(3, 4), torch.zeros(3, 4)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    harm = next((fault for fault in group.faults if fault.verdict == "writes outside"), None)
    if harm is None:
        what, (message, advice) = "reads", _of_reads(group)
    else:
        what = harm.what
        only_read = any("only read" in fault.detail for fault in group.faults)
        message = (
            f"`{group.op}` writes into `{what}` {group.where}, and only reads it when it is contiguous."
            if only_read
            else f"`{group.op}` writes outside of `{what}` {group.where}: memory that belongs to something else is"
            " overwritten."
        )
        message += group.right
        advice = (
            f"Let the kernel write into a contiguous tensor of its own, and copy that into `{what}`; or give it"
            f" `{what}.stride()`."
        )
        if not group.operands and not group.gradients:
            advice = f"Let the kernel write as many elements as `{what}` has."
    details = (what, *group.operands)
    problem = Problem(group.site, message, advice, group.evidence, count=len(group.failed), details=details)
    return finding(__name__, problem)


def _of_reads(group: Group) -> tuple[str, str]:
    message = (
        f"`{group.op}` reads memory that is not its operand's {group.where}: its result changes with what lies there."
    )
    return message, "Let the kernel read as many elements as its operands have."
