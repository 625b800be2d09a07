"""SW403 fake-strides: a fake kernel promises other strides than the operator gives.

What it means
    An operator of `torch.library` has a fake (meta) kernel, which tells compilers the sizes and strides of its outputs.
    For operands in some layout the strides that it tells are not those that the real kernel gives.

Why it happens
    The fake kernel says `empty_like(x)`, which keeps the order of `x`'s dimensions, while the real one allocates in the
    order of the indices; or the other way round. For a contiguous sample both are the same, so that tests with one
    sample pass. Compiled code then computes addresses with strides that are not there: inductor stops with "expected
    size, stride", or another backend reads wrong values.

How to fix it
    Let the fake kernel allocate as the real one does: `x.new_empty(x.shape)` for outputs that are contiguous,
    `torch.empty_like(x)` for those that follow `x`.

When to ignore it
    Where the operator is never compiled nor exported. It is a note for a function or module without a fake kernel of
    its own: there it is torch's own operators that promise other strides.
"""

from stridewise.checks.operators.group import Group
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity

SEVERITY = "error"
WAY = "op"
FIRES = (
    """
import torch

@torch.library.custom_op("stridewise_examples::dense_output", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().clone()

@op.register_fake
def _(x):
    return torch.empty_like(x)

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)
QUIET = (
    """
import torch

@torch.library.custom_op("stridewise_examples::dense_output_said", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().clone()

@op.register_fake
def _(x):
    return x.new_empty(x.shape)

def op_sample():
    return (torch.arange(12.0).reshape(3, 4),)
""",
)


def found(group: Group) -> Finding:
    """What to say of it."""
    message = (
        f"The fake kernel of `{group.op}` promises other strides than it gives {group.where}: compiled code will read"
        " its result wrongly, or stop."
    )
    advice = (
        "Let the fake kernel allocate as the real one does: `x.new_empty(x.shape)` for outputs that are contiguous,"
        " `torch.empty_like(x)` for those that follow `x`'s strides."
    )
    severity: Severity | None = None
    if not group.own_fake:
        message = (
            f"What `{group.op}` calls promises compilers other strides than `{group.op}` gives {group.where}: under"
            " torch.compile and torch.export a `view` of its result may do what it does not in eager mode, or raise."
        )
        advice = "Take `reshape` for `view` behind it, or call `.contiguous()` on what it is given."
        severity = "note"
    return finding(
        __name__,
        Problem(group.site, message, advice, group.evidence, severity, count=len(group.failed), details=group.operands),
    )
