"""SW313 contiguous-then-cast: a strided tensor is copied to be contiguous, and at once copied again to another dtype.

What it means
    `x.transpose(1, 2).contiguous().to(torch.float16)` goes over the data twice: `contiguous` copies it in the old
    dtype, and the cast makes a second copy, although a cast can change the order in memory in the same pass.

Why it happens
    A cast keeps the strides of what it casts, so the order was changed first, by a method of its own. The form that
    looks right is a trap: `x.to(dtype, memory_format=torch.contiguous_format)` makes one pass if the dtype changes,
    but if it does not, it returns a transposed `x` as it is, strides and all; so do `x.float(memory_format=…)` and its
    like. (Of channels_last it does make a contiguous copy.)

How to fix it
    Ask for both: `x.to(dtype, memory_format=torch.contiguous_format).contiguous()`. If the dtype changes, the cast
    makes it contiguous and `contiguous` has nothing to do; if it does not, `contiguous` copies. It is one pass either
    way. The fix is shown only: it is longer than what it replaces, and gains only where the dtype does change.

When to ignore it
    Where the dtype never changes, where the tensor is small, and in code that `torch.compile` fuses. Between devices
    (`.contiguous().to(device)`) two copies are right: this rule does not look at them.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.facts.value import State
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver, torch_at
from stridewise.linter.reading.tensors import is_dtype
from stridewise.linter.rule import Fires, Problem

SEVERITY = "note"
CASTS = ("float", "half", "bfloat16", "double", "int", "long", "bool")
"""Methods of tensors that cast. Each takes a memory format, and returns the tensor itself if it has the dtype."""
_METHODS = ("to", "type", "type_as", *CASTS)
WORDS = ("contiguous",)

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3, 4)
    return x.transpose(1, 2).contiguous().to(torch.float16)
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3, 4)
    return x.transpose(1, 2).to(torch.float16, memory_format=torch.contiguous_format).contiguous()
""",
    ),
    Fires(
        """
import torch

def program(dtype=torch.float64):
    x = torch.zeros(2, 3, 4).permute(2, 0, 1)
    return x.contiguous().to(dtype=dtype), x.contiguous().half()
""",
        fixed="""
import torch

def program(dtype=torch.float64):
    x = torch.zeros(2, 3, 4).permute(2, 0, 1)
    return x.to(dtype=dtype, memory_format=torch.contiguous_format).contiguous(), x.half(memory_format=torch.contiguous_format).contiguous()
""",  # noqa: E501
        count=2,
    ),
    Fires(
        """
import torch

def program():
    x, y = torch.zeros(2, 3), torch.zeros(1, dtype=torch.int32)
    return x.t().contiguous().type_as(y)
"""
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.contiguous().to("cpu"), x.contiguous().to(device="cpu", dtype=torch.float16)
""",
    """
import torch

def program(x=torch.zeros(2, 3)):
    return x.contiguous().to(torch.float16)
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.to(torch.float16, memory_format=torch.contiguous_format).contiguous()
""",
    """
import torch

def program(device=torch.device("cpu")):
    x = torch.zeros(2, 3).t()
    return x.contiguous().to(device)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Casts of what `contiguous` returns of a view that is not contiguous by the source."""
    for copy in module.calls("contiguous"):
        function = module.parent(copy)
        call = module.parent(function) if isinstance(function, ast.Attribute) else None
        if not isinstance(call, ast.Call) or call.func is not function or not _casts(module, call):
            continue
        base = contiguous(module, copy)
        if base is None or module.value(base).state not in (State.PERMUTED, State.GAPPED, State.EXPANDED):
            continue
        written = _written(module, copy, call, "torch")
        yield Problem(
            call,
            f"`{module.text(call)}` goes over `{module.text(base)}` twice where the dtype changes: `contiguous` copies "
            "it in the old one, and the cast copies that. A cast can change the order in memory as well.",
            advice=f"Write `{' '.join(written.split())}`: one pass. Keep the last call: a tensor that has the dtype "
            "already comes back from the cast as it is, strided."
            if written
            else "Cast with `.to(dtype, memory_format=torch.contiguous_format).contiguous()`: one pass.",
            edits=_fix(module, base, copy, call),
        )


def _casts(module: Module, call: ast.Call) -> bool:
    """Whether a call asks for a dtype, and for nothing else."""
    if receiver(module, call, *_METHODS) is None:
        return False
    arguments = [*((None, each) for each in call.args), *((each.arg, each.value) for each in call.keywords)]
    name = call.func.attr  # type: ignore[attr-defined]
    if name in CASTS:
        return not arguments
    if len(arguments) != 1:
        return False
    keyword, argument = arguments[0]
    if name == "type_as":
        return keyword is None
    return keyword == "dtype" or (keyword is None and is_dtype(module, argument))


def _fix(module: Module, base: ast.expr, copy: ast.Call, call: ast.Call) -> tuple[Edit, ...]:
    torch = torch_at(module, call)
    text = _written(module, copy, call, torch or "")
    if torch is None or not text or has_comment(module, base, call):
        return ()
    return (Edit(module.source.name, module.source.span(call), text, "display"),)


def _written(module: Module, copy: ast.Call, call: ast.Call, torch: str) -> str:
    """The cast first, in one pass; empty for `type_as`, which takes no memory format."""
    name = call.func.attr  # type: ignore[attr-defined]
    if name == "type_as":
        return ""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    argument = "".join(f"{'dtype=' if call.keywords else ''}{module.source.source(each)}, " for each in given)
    return f"{before(module, copy)}.{name}({argument}memory_format={torch}.contiguous_format).contiguous()"
