"""SW502 stride-recompile: a function is compiled again because a tensor came in with other strides.

What it means
    Compiled code holds for the strides that it was compiled for, and a guard checks them at each call. Another layout
    of the same sizes is another program: it is traced and compiled again, which takes seconds to minutes, and after
    some times (`torch._dynamo.config.recompile_limit`) the function is not compiled any more, but run in eager mode.

Why it happens
    A batch that is contiguous in one step and a transposed or sliced view in the next; training in channels_last and
    validation without; the last batch, cut by a slice. `dynamic=True` makes sizes symbols, but the order of strides
    stays part of the guard: it does not help.

How to fix it
    Give the function one layout: `x = x.contiguous()`, or `x.to(memory_format=...)`, before the call and outside of
    what is compiled.

When to ignore it
    If there are two layouts, and both are used for long: two programs are compiled, each once.
"""

from collections.abc import Iterator

from stridewise.checks.rule import Problem, finding
from stridewise.compiled.facts import Facts
from stridewise.findings import Finding, Severity
from stridewise.results.compiled import Recompile

SEVERITY: Severity = "warning"
WAY = "compile"
FIRES = (
    """
import torch

def op(x):
    return torch.relu(x) + 1

def subject():
    x = torch.randn(8, 8)
    return {"fn": op, "args": (x,), "calls": [(x.t(),)], "compare": False}
""",
)
QUIET = (
    """
import torch

def op(x):
    return torch.relu(x) + 1

def subject():
    x = torch.randn(8, 8)
    return {"fn": op, "args": (x,), "calls": [(x.t().contiguous(),)], "compare": False}
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    """A finding for each function and tensor."""
    groups: dict[tuple[object, ...], list[Recompile]] = {}
    for recompile in facts.result.recompiles:
        if recompile.about_strides:
            groups.setdefault((recompile.function, recompile.tensor), []).append(recompile)
    for rows in groups.values():
        first = rows[0]
        tensor = first.tensor or "a tensor"
        times = "again" if len(rows) == 1 else f"{len(rows)} times more"
        message = f"It was compiled {times} because {tensor} came with other strides."
        evidence = [f"{row.id}: {row.reason}" for row in rows[:4]]
        if facts.dynamic_recompiles:
            message += " `dynamic=True` does not help: strides stay part of the guard."
            evidence.append(f"compiled with dynamic=True: {facts.dynamic_recompiles} times again for strides")
        name = tensor.partition(" ")[2].strip("`") or "x"
        advice = (
            f"Give it one layout in all calls, before what is compiled: `{name} = {name}.contiguous()`, or for images"
            f" always `{name}.to(memory_format=torch.channels_last)`."
        )
        yield finding(
            __name__,
            Problem(first.function, message, advice, tuple(evidence), count=len(rows), details=(tensor,)),
        )
