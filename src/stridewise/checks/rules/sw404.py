"""SW404 dense-gradient-assumed: a backward takes its gradient for contiguous.

What it means
    With contiguous operands, and gradients of equal values that come in in other layouts, the gradients that the
    operator gives back are wrong. Nothing was raised.

Why it happens
    Autograd hands a backward what comes from the operators behind: `sum()` gives a gradient with stride 0, `cat` parts
    of a larger one, a transpose a transposed one. A backward that walks the gradient flat, or with its input's strides,
    reads other elements, for an expanded one those past its storage. `gradcheck` hands in contiguous gradients only.

How to fix it
    `grad = grad.contiguous()` at the beginning of the backward, bound to a name; or
    `stridewise.expect_layout(grads="contiguous", mode="convert")` on the function.

When to ignore it
    Never: which gradient comes in is not the operator's to choose.
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

class op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        given = torch.empty(grad.shape)
        ctypes.memmove(given.data_ptr(), grad.data_ptr(), 4 * grad.numel())
        return given

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)
QUIET = (
    """
import torch

class op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    reads = " It reads memory that is not the gradient's." if group.reads_past else ""
    message = f"The backward of `{group.op}` gives wrong gradients {group.where}, and raises no error.{reads}"
    advice = "Begin the backward with `grad = grad.contiguous()`, or give its kernel the gradient's own strides."
    return finding(__name__, Problem(group.site, message, advice, group.evidence, count=len(group.failed)))
