"""SW505 costly-layout-call: a layout call in the source adds kernels or copies to the compiled program.

What it means
    The program was compiled with and without the call. Without it there are fewer kernels, or fewer tensors are
    copied, in every step. `.contiguous()` is no barrier for the compiler, and no help either: kernels that it
    generates read any strides, and a library call that needs another layout gets it without being asked.

Why it happens
    `.contiguous()` in front of `view`, of attention or of a matrix product, from a time or a habit of eager mode. A
    permute whose order no library call takes, so that the compiler copies behind it.

How to fix it
    Leave the `.contiguous()` out, and write `reshape` where a `view` needed it. For a permute, let what comes before
    write the tensor in the order that is needed: permute the weights once instead of the activations in each step.

When to ignore it
    Where a result has to be contiguous for somebody outside: without the call it has other strides.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._amounts import size as byte_count
from stridewise.compiled.facts import Facts
from stridewise.findings import Cost, Finding, Severity
from stridewise.results.compiled import Trial

SEVERITY: Severity = "warning"
WAY = "compile"
FIRES = (
    """
import torch
from torch.nn.functional import scaled_dot_product_attention

def op(q, k, v):
    q = q.transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    v = v.transpose(1, 2).contiguous()
    return scaled_dot_product_attention(q, k, v)

def subject():
    return {"fn": op, "args": tuple(torch.randn(2, 64, 8, 32) for _ in range(3)), "compare": False}
""",
)
QUIET = (
    """
import torch
from torch.nn.functional import scaled_dot_product_attention

def op(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v)

def subject():
    return {"fn": op, "args": tuple(torch.randn(2, 64, 8, 32) for _ in range(3)), "compare": False}
""",
    """
import torch

def op(x):
    return torch.relu(x.t().contiguous()) + 1

def subject():
    return {"fn": op, "args": (torch.randn(64, 64),), "compare": False}
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    """A finding for each call whose absence makes the program smaller."""
    for trial in facts.result.trials:
        if trial.failed is None and (_less(trial.kernels) or _less(trial.copies)):
            yield _finding(trial)


def _less(pair: tuple[int, int]) -> bool:
    return pair[0] > pair[1]


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _finding(trial: Trial) -> Finding:
    before, after = trial.bytes_moved
    moved = None if before is None or after is None else before - after
    removed = trial.without == "removed"
    what = f"`.{trial.call}()`" if removed else f"the layout of `{trial.call}`"
    amount = f", {byte_count(moved)} moved a call" if moved else ""
    message = (
        f"With {what} the compiled program has {_counted(trial.kernels[0], 'kernel')} and"
        f" {_counted(trial.copies[0], 'copy')}, without it {trial.kernels[1]} and {trial.copies[1]}{amount}."
    )
    severity: Severity | None = None
    if trial.output_strides_change:
        message += " A result has other strides then."
        severity = "note"
    advice = (
        "Leave it out, and write `reshape` where a `view` needs it."
        if removed
        else "Let what comes before write the tensor in this order, or permute weights once instead of activations."
    )
    other = "without" if removed else f"with {trial.without}"
    evidence = (
        f"compiled with it and {other}: kernels {trial.kernels[0]} and {trial.kernels[1]}, copies"
        f" {trial.copies[0]} and {trial.copies[1]}, library calls {trial.externs[0]} and {trial.externs[1]}",
    )
    cost = Cost(copies=trial.copies[0] - trial.copies[1], bytes_moved=moved)
    problem = Problem(trial.site, message, advice, evidence, severity, details=(trial.call,))
    return replace(finding(__name__, problem), cost=cost)
