"""SW406 crash-or-hang: an operator ends the process, or does not come back, for operands in some layout.

What it means
    It ran in a process of its own. For operands that are contiguous it gave a result; in another layout the process
    was ended by a signal, or gave no answer within the timeout.

Why it happens
    A kernel walks past the end of a small storage, as that of an expanded tensor, or damages the heap, which shows at
    the next allocation. Or a loop over a stride of 0 never ends.

How to fix it
    Make the copy that it needs in the wrapper, or check the layout there and raise:
    `stridewise.expect_layout(x="contiguous")`.

When to ignore it
    Never; but where a run is just slow, give it a longer `--timeout`.
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

def op(x):
    if not x.is_contiguous():
        ctypes.string_at(0)
    return x * 2

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)
QUIET = (
    """
import torch

def op(x):
    return x * 2

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    hangs = group.failed[0].status == "hung"
    does = "does not come back" if hangs else "ends the process"
    message = f"`{group.op}` {does} {group.where}: {group.failed[0].message}."
    advice = (
        "Make the copy that it needs in its wrapper, or check there and raise an error that says which layout it takes."
    )
    details = (*group.operands, "hangs" if hangs else "crashes")
    return finding(
        __name__, Problem(group.site, message, advice, group.evidence, count=len(group.failed), details=details)
    )
