"""SW301 discarded-result: the result of a call that changes nothing in place is thrown away.

What it means
    `x.contiguous()`, `x.transpose(0, 1)` or `x.unsqueeze(1)` stands alone as a statement. These give a new tensor and
    leave `x` as it is: the statement does nothing.

Why it happens
    The name sounds as if it acted on `x`, or the assignment was lost in an edit. What follows then works on the layout
    or the shape that `x` had before, and often goes on without an error.

How to fix it
    Bind the result: `x = x.contiguous()`. Whoever reads `x` afterwards gets another tensor then, so no fix is made
    unasked. If the statement was never needed, delete it.

When to ignore it
    In a benchmark or a test that calls it for its time or its error.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.lint.facts.effects import METHODS, Effect
from stridewise.lint.module import Module
from stridewise.lint.rule import Fires, Problem

SEVERITY = "error"
_NAMES = (
    "contiguous",
    *(name for name, effect in METHODS.items() if effect in (Effect.PERMUTED, Effect.EXPANDED, Effect.RESHAPED)),
)
WORDS = _NAMES

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    x.contiguous()
    return x
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    x = x.contiguous()
    return x
""",
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    x = x.contiguous()
    return x
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of such methods that are statements."""
    for call in module.calls(*_NAMES):
        statement = module.parent(call)
        function = call.func
        if not isinstance(statement, ast.Expr) or not isinstance(function, ast.Attribute):
            continue
        base = module.value(function.value)
        if base.kind in ("array", "other") or module.name(function) is not None:
            continue
        fix: tuple[Edit, ...] = ()
        if isinstance(function.value, ast.Name):
            text = f"{function.value.id} = {module.source.source(call)}"
            fix = (Edit(module.source.name, module.source.span(statement), text, "unsafe"),)
        yield Problem(
            call,
            f"`{module.text(call)}` gives a new tensor, and it is thrown away: `{module.text(function.value)}` stays "
            "as it is.",
            advice="Bind the result, or delete the statement.",
            edits=fix,
        )
