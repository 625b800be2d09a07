"""SW330 contiguous-view: `.contiguous().view(…)` where `.reshape(…)` says the same in one call.

What it means
    `x.contiguous().view(2, -1)` makes a tensor contiguous so that `view` can't raise. `x.reshape(2, -1)` views where
    that is possible and copies where it is not.

Why it happens
    It is how it was written before `reshape` came, and what the message of the error that `view` raises leads to.

How to fix it
    `.reshape(…)`. It is a matter of style, and off unless asked for. The fix is made only on request: of a strided
    tensor `contiguous` always gives new memory, while `reshape` may give a view of the old. Writing to the result
    then writes to `x`. What it saves is the copy where a view would have done, such as merging dimensions that were
    not moved.

When to ignore it
    Where the copy is wanted: the result is written to, or read many times by something that is slow on strides.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver
from stridewise.linter.reading.tensors import is_dtype
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
DEFAULT = False
WORDS = ("contiguous",)
_RESHAPES = {"view": "reshape", "view_as": "reshape_as"}

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    return x.contiguous().view(3, -1), x.contiguous().view_as(torch.zeros(6, 4))
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    return x.reshape(3, -1), x.reshape_as(torch.zeros(6, 4))
""",
        count=2,
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 4).t()
    return x.contiguous().view(torch.int32), x.contiguous().view(dtype=torch.int32)
""",
    """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    return x.contiguous(memory_format=torch.channels_last)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `view` on what `contiguous` returns."""
    for copy in module.calls("contiguous"):
        function = module.parent(copy)
        call = module.parent(function) if isinstance(function, ast.Attribute) else None
        base = contiguous(module, copy)
        if not isinstance(function, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not function:
            continue
        if base is None or receiver(module, call, *_RESHAPES) is None or _is_of_dtype(module, call):
            continue
        name = _RESHAPES[function.attr]
        fix: tuple[Edit, ...] = ()
        if not has_comment(module, base, function):
            _, end = module.source.span(function)
            rest = module.source.decode((end, module.source.span(call)[1]))
            fix = (
                Edit(module.source.name, module.source.span(call), f"{before(module, copy)}.{name}{rest}", "unsafe"),
            )
        yield Problem(
            call,
            f"`{module.text(copy)}` is made contiguous only for `{function.attr}`. `{name}` copies by itself, and "
            "only where no view is possible.",
            advice=f"Write `.{name}(…)`, unless the result is written to: it may share memory with "
            f"`{module.text(base)}`.",
            edits=fix,
        )


def _is_of_dtype(module: Module, call: ast.Call) -> bool:
    """Whether a view is one with another dtype: `x.view(torch.int32)`."""
    if call.keywords:
        return True
    return len(call.args) == 1 and is_dtype(module, call.args[0])
