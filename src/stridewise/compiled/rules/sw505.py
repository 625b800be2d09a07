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
from stridewise.compiled.facts import Facts
from stridewise.findings import Cost, Finding, Severity
from stridewise.results.compiled import Trial
from stridewise.results.numbers import byte_count

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
        if pays(trial):
            yield _finding(trial)


def pays(trial: Trial) -> bool:
    """Whether the program does less without a call: fewer launches, or fewer copies, and not more of the other."""
    if trial.failed is not None:
        return False
    launches = tuple(trial.kernels[at] + trial.externs[at] for at in (0, 1))
    before, after = trial.bytes_moved
    moves_more = before is not None and after is not None and after > before
    fewer = launches[1] < launches[0] or trial.copies[1] < trial.copies[0]
    return fewer and launches[1] <= launches[0] and not moves_more


def difference(trial: Trial) -> str:
    """What is less, and what more, without a call: `1 kernel instead of 2, and 524 kB less copied`."""
    parts = [
        f"{_counted(pair[1], noun)} instead of {pair[0]}"
        for noun, pair in (("kernel", trial.kernels), ("library call", trial.externs), ("copy", trial.copies))
        if pair[0] != pair[1]
    ]
    before, after = trial.bytes_moved
    if before is not None and after is not None and before != after:
        parts.append(f"{byte_count(abs(before - after))} {'less' if after < before else 'more'} copied in a call")
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _finding(trial: Trial) -> Finding:
    removed = trial.without == "removed"
    before, after = trial.bytes_moved
    moved = None if before is None or after is None else before - after
    what = f"`.{trial.call}()`" if removed else f"the order of dimensions that `{trial.call}` gives"
    message = f"Without {what} the compiled program has {difference(trial)}."
    if trial.new_externs:
        names = ", ".join(f"`{name.removeprefix('torch.ops.')}`" for name in trial.new_externs)
        message += f" It calls {names} then, which it does not with it."
    severity: Severity | None = None if removed else "note"
    if trial.output_strides_change:
        message += " A result has other strides then."
        severity = "note"
    advice = (
        "Leave it out, and write `reshape` where a `view` needs it."
        if removed
        else "It can't just be left out: write the tensor in this order where it is made; of weights that is free."
    )
    evidence = f"compiled with it and {'without' if removed else f'with {trial.without}'}: {_figures(trial)}"
    copies = trial.copies[0] - trial.copies[1]
    cost = Cost(copies=max(copies, 0), bytes_moved=moved)
    problem = Problem(trial.site, message, advice, (evidence,), severity, details=(trial.call,))
    return replace(finding(__name__, problem), cost=cost)


def _figures(trial: Trial) -> str:
    rows = (("kernels", trial.kernels), ("library calls", trial.externs), ("copies", trial.copies))
    return ", ".join(f"{name} {pair[0]} and {pair[1]}" for name, pair in rows)
