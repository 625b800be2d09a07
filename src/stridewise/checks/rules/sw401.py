"""SW401 wrong-values: an operator gives other values for the same numbers in another layout, without an error.

What it means
    It was run with operands of equal values in many layouts. For some of them its results, or its gradients, differ
    from those of contiguous operands by more than rounding. Nothing was raised.

Why it happens
    A kernel takes an address and a number of elements, and walks memory flat, while the tensor's strides say that its
    elements lie elsewhere: a transposed matrix, a part of a `split`, what `expand` gave. Or the kernel reads a
    contiguous copy, and writes flat into an output that `empty_like` made with the original's strides. Or the copy was
    freed before the kernel ran: `x.contiguous().data_ptr()` is the address of a temporary.

How to fix it
    Make the copy in the wrapper and keep it until the kernel is done, `x = x.contiguous()`; allocate outputs with
    `x.new_empty(x.shape)`. Or give the kernel the strides. Or refuse: `stridewise.expect_layout(x="contiguous")`.

When to ignore it
    Where the operator is about memory and not about values, as one that returns strides or addresses.
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
    y = torch.empty(x.shape)
    ctypes.memmove(y.data_ptr(), x.data_ptr(), 4 * x.numel())
    return y

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
    """
import torch

def op(x):
    dense = x.contiguous()
    y = torch.empty_like(x)
    y.as_strided((y.numel(),), (1,)).copy_(dense.view(-1))
    return y

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
    """
import torch

def op(x, w):
    return torch.nn.functional.conv2d(x, w)

def op_sample():
    return torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
""",
)


_GAPS = frozenset({"gaps", "expanded", "windows"})


def found(group: Group) -> Finding:
    """What to say of it."""
    details = tuple(sorted(group.operands))
    return finding(
        __name__,
        Problem(group.site, _message(group), _advice(group), group.evidence, count=len(group.failed), details=details),
    )


def _message(group: Group) -> str:
    gradient = all(outcome.case.aspect != "values" for outcome in group.failed)
    what = "gives wrong gradients" if gradient else "gives wrong values"
    reads = " It reads memory that is not the operand's." if group.reads_past else ""
    return f"`{group.op}` {what} {group.where}, and raises no error.{group.right}{reads}"


def _advice(group: Group) -> str:
    name = group.operands[0] if len(group.operands) == 1 and group.operands[0].isidentifier() else "x"
    if group.written:
        return (
            f"Let the kernel write into a contiguous tensor of its own, and copy that into `{name}`; or give it"
            f" `{name}.stride()`."
        )
    failing, holding = set(group.failing), set(group.holding)
    if failing <= {"permuted", "permuted with gaps"} and _GAPS & holding:
        return (
            f"Allocate the output with `{name}.new_empty({name}.shape)`: `empty_like({name})` keeps the order of"
            f" `{name}`'s dimensions in memory, and the kernel writes in the order of their indices."
        )
    return (
        f"Call `{name} = {name}.contiguous()` before the kernel and keep the result until it is done, or give the"
        f" kernel `{name}.stride()`. Allocate outputs with `{name}.new_empty({name}.shape)`."
    )
