"""SW332 contiguous-expand: what `expand` repeats without memory is written out.

What it means
    `x.expand(64, -1, -1).contiguous()`, or `.clone()`: `expand` repeats by strides of 0 and takes no memory. The copy
    writes every repetition: here 64 times the bytes of `x`.

Why it happens
    Something refused the expanded tensor: a `view`, a kernel that takes no strides, or an operation in place.

How to fix it
    Keep the expanded view where it is only read: arithmetic, `matmul`, `where` and indexing broadcast, and work on
    `x` before it is expanded where the result is the same for each repetition. There is no fix to apply.

When to ignore it
    Where it is written to, or handed to a kernel that walks its memory. That is the usual case, and the source does
    not show it: the rule is off unless asked for.
"""

from collections.abc import Iterator

from stridewise.linter.facts.value import State
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import contiguous, receiver
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
DEFAULT = False
WORDS = ("contiguous", "clone")

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(1, 3)
    return x.expand(64, -1).contiguous()
"""
    ),
    Fires(
        """
import torch

def program():
    x = torch.broadcast_to(torch.zeros(1, 3), (64, 3))
    return x.clone(memory_format=torch.contiguous_format)
"""
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(1, 3)
    return x.expand(64, -1) + 1
""",
    """
import torch

def program():
    x = torch.zeros(64, 3)
    return x.clone(), x.contiguous()
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Copies of expanded views."""
    for call in module.calls("contiguous", "clone"):
        base = contiguous(module, call) or receiver(module, call, "clone")
        if base is None or module.value(base).state is not State.EXPANDED:
            continue
        made = module.value(base).node
        yield Problem(
            call,
            f"`{module.text(call)}` writes out every repetition of an expanded view, which takes no memory of its own.",
            advice="Keep the view where it is only read: operators broadcast.",
            origin=made if made is not base else None,
        )
