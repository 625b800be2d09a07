"""SW331 contiguous-reshape: a copy is made ahead of `.reshape(…)`, which makes one itself where it has to.

What it means
    `x.contiguous().reshape(2, -1)` always copies a strided tensor. `x.reshape(2, -1)` copies only if the new shape
    can't be had with other strides, and then straight into place.

Why it happens
    A `.contiguous().view(…)` was changed to `reshape` by halves, or the copy was to be on the safe side.

How to fix it
    Delete `.contiguous()`. The fix is made only on request: where `reshape` views, the result shares the memory of
    `x`, and what reads it reads strided memory.

When to ignore it
    Where the copy is wanted: the result is written to, or read many times by something that is slow on strides. That
    the source can't tell is why the rule is off unless asked for.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
DEFAULT = False
WORDS = ("contiguous",)
_RESHAPES = ("reshape", "flatten", "reshape_as")

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    return x.contiguous().reshape(3, 2, 2, 2), x.contiguous().flatten(1)
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    return x.reshape(3, 2, 2, 2), x.flatten(1)
""",
        count=2,
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    return x.contiguous().view(3, -1)
""",
    """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    return x.contiguous(memory_format=torch.channels_last).reshape(2, -1)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `reshape` and its like on what `contiguous` returns."""
    for copy in module.calls("contiguous"):
        function = module.parent(copy)
        call = module.parent(function) if isinstance(function, ast.Attribute) else None
        base = contiguous(module, copy)
        if not isinstance(function, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not function:
            continue
        if base is None or receiver(module, call, *_RESHAPES) is None:
            continue
        fix: tuple[Edit, ...] = ()
        if not has_comment(module, base, copy):
            fix = (Edit(module.source.name, module.source.span(copy), before(module, copy).rstrip(), "unsafe"),)
        yield Problem(
            call,
            f"`{module.text(copy)}` copies whatever is strided; `{function.attr}` copies only where no view is "
            "possible.",
            advice="Leave `.contiguous()` out, unless the result is written to: it may share memory with "
            f"`{module.text(base)}`.",
            edits=fix,
        )
