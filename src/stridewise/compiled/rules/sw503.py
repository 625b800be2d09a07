"""SW503 break-at-layout-call: a graph ends where the program asks for the layout of a tensor.

What it means
    The compiler can't follow the program here, so the graph ends: what stands before and after is compiled apart,
    nothing is fused across, and every tensor that crosses is written to memory in the strides of eager mode.

Why it happens
    `x.is_contiguous()` and `x.stride()` alone are known while tracing. What is done with them is not: they are
    printed, logged, handed to a function of an extension, or what is asked is an address (`data_ptr()`), which no
    graph has.

How to fix it
    Take such lines out of what is compiled, or guard them: `if not torch.compiler.is_compiling():`. An extension that
    needs addresses belongs behind an operator of `torch.library`, with a fake kernel.

When to ignore it
    Where the break is wanted, between parts that would not be fused anyway.
"""

from collections.abc import Iterator

from stridewise.checks.rule import Problem, finding
from stridewise.compiled.facts import Facts
from stridewise.findings import Finding, Severity
from stridewise.results.compiled import Break

SEVERITY: Severity = "warning"
WAY = "compile"
FIRES = (
    """
import torch

def op(x):
    y = x * 2
    print("contiguous:", y.is_contiguous())
    return y.sum()

def subject():
    return {"fn": op, "args": (torch.randn(8, 8),), "compare": False}
""",
)
QUIET = (
    """
import torch

def op(x):
    y = x * 2
    if not torch.compiler.is_compiling():
        print("contiguous:", y.is_contiguous())
    return y.sum() if y.is_contiguous() else y.mean()

def subject():
    return {"fn": op, "args": (torch.randn(8, 8),), "compare": False}
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    """A finding for each place."""
    groups: dict[object, list[Break]] = {}
    for each in facts.result.breaks:
        if each.layout_call is not None:
            groups.setdefault(each.site, []).append(each)
    for rows in groups.values():
        call = rows[0].layout_call
        message = f"The graph ends where the program asks for `{call}()`: what is before and after is compiled apart."
        advice = (
            "Take the address inside of an operator of `torch.library`."
            if call in ("data_ptr", "untyped_storage", "storage")
            else "Guard the line with `if not torch.compiler.is_compiling():`, or take it out of what is compiled."
        )
        evidence = tuple(f"{row.id}: {row.reason}" for row in rows[:2])
        yield finding(
            __name__, Problem(rows[0].site, message, advice, evidence, count=len(rows), details=(call or "",))
        )
