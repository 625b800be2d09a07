"""SW303 format-without-effect: `.to(memory_format=torch.contiguous_format)` leaves a transposed tensor as it lies.

What it means
    `x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format)` is contiguous if `x` had another dtype. If it
    had that dtype already, and is on that device, the call gives the transposed view back, as strided as before.

Why it happens
    `.to` returns its input where nothing is to be converted. Of memory formats it looks only at the one that the
    strides suggest, and a transposed tensor suggests the contiguous one. So the layout depends on the dtype that a
    model runs in: a view, a kernel or an export behind it works in bfloat16 and not in float32.

How to fix it
    Add `.contiguous()`: where the call did convert, that costs nothing. The result is a copy then, even where it shared
    the memory of `x` before: no fix is made unasked. `.contiguous()` alone is the call where no dtype is given.

When to ignore it
    When the dtype always differs.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.facts.conditions import memory_format
from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, has_comment
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits as editing

SEVERITY = "warning"
_CONVERSIONS = ("to", "float", "half", "bfloat16", "double", "int", "long", "bool", "cpu", "cuda", "type")
_GIVEN = (None, "parameter", "attribute")
"""What a value has as its `op` that was not computed here."""
_SPLITS = ("view", "reshape", "unflatten")
"""What splits and joins the dimensions of a tensor, and leaves a row-major one row-major."""
WORDS = ("contiguous_format",)
_CHANNELS_LAST = ((0, 3, 1, 2), (0, 4, 1, 2, 3))
"""The permutations that make another memory format of a contiguous tensor, which `.to` does see."""

FIRES = (
    Fires(
        """
import torch

def program(dtype=torch.float32):
    x = torch.zeros(2, 3, 4)
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format)
""",
        fixed="""
import torch

def program(dtype=torch.float32):
    x = torch.zeros(2, 3, 4)
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format).contiguous()
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.to(memory_format=torch.contiguous_format)
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.contiguous()
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3, 4)
    return [each.mT.float(memory_format=torch.contiguous_format) for each in (x, x)][0]
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3, 4)
    return [each.mT.float(memory_format=torch.contiguous_format).contiguous() for each in (x, x)][0]
""",
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.to(torch.float32, memory_format=torch.contiguous_format).contiguous()
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
""",
    """
import torch

def program(image=torch.zeros(1, 4, 4, 3)):
    return image.permute(0, 3, 1, 2).to(memory_format=torch.contiguous_format)
""",
    """
import torch

def program(image=torch.zeros(1, 3, 4, 4).to(memory_format=torch.channels_last)):
    return image.to(memory_format=torch.contiguous_format)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Conversions of transposed tensors that name the contiguous format."""
    for call in module.calls(*_CONVERSIONS):
        function = call.func
        if not isinstance(function, ast.Attribute) or not _names_contiguous(call) or _copies(call):
            continue
        if _is_followed(module, call):
            continue
        value = module.value(function.value)
        if value.state is not State.PERMUTED or not _suggests_contiguous(value):
            continue
        bare = function.attr == "to" and not call.args and len(call.keywords) == 1
        when = "" if bare else " if that has the dtype and the device already"
        yield Problem(
            call,
            f"`{module.text(call)}` leaves `{module.text(function.value)}` as strided as it is{when}: where nothing is "
            f"to be converted, `{function.attr}` returns its input.",
            advice="Write `.contiguous()` instead." if bare else "Add `.contiguous()`, free where it did convert.",
            edits=_fix(module, call, function.value, bare),
        )


def _fix(module: Module, call: ast.Call, base: ast.expr, bare: bool) -> tuple[Edit, ...]:
    if not bare:
        return (editing.append(module.source, call, ".contiguous()"),)
    if has_comment(module, base, call):
        return ()
    text = f"{before(module, call)}.contiguous()"
    return (Edit(module.source.name, module.source.span(call), text, "unsafe"),)


def _names_contiguous(call: ast.Call) -> bool:
    return any(
        keyword.arg == "memory_format" and memory_format(keyword.value) is State.CONTIGUOUS for keyword in call.keywords
    )


def _copies(call: ast.Call) -> bool:
    """Whether it is told to copy in any case."""
    return any(
        keyword.arg is None or (keyword.arg == "copy" and getattr(keyword.value, "value", True) is not False)
        for keyword in call.keywords
    )


def _is_followed(module: Module, call: ast.Call) -> bool:
    """Whether what comes next is `.contiguous()`, or a copy that is."""
    after = module.parent(call)
    return isinstance(after, ast.Attribute) and after.attr in ("contiguous", "clone", "flatten", "reshape")


def _suggests_contiguous(value: Value) -> bool:
    """Whether strides like these can't be those of another memory format."""
    node, base = value.node, value.of
    while base is not None and base.op in _SPLITS and base.of is not None:
        base = base.of
    if base is not None and not _is_row_major(base):
        return False  # two permutations may make another format, and what was computed may lie in any order
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT", "H", "mH")
    if not isinstance(node, ast.Call):
        return False
    numbers = [_number(each) for each in (node.args[0].elts if _is_one_tuple(node) else node.args)]  # type: ignore[attr-defined]
    if value.op == "permute":
        return len(numbers) > 1 and None not in numbers and tuple(numbers) not in _CHANNELS_LAST
    return value.op in ("transpose", "t", "swapaxes", "swapdims", "adjoint")


def _is_row_major(base: Value) -> bool:
    """Whether a tensor lies as its dimensions are counted, or was given, as nearly all are that do."""
    if not base.sure:
        return base.state is State.UNKNOWN and base.op in _GIVEN
    return base.state in (State.CONTIGUOUS, State.GAPPED)


def _is_one_tuple(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List))


def _number(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None
