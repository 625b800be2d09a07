"""SW334 assumed-strides: `as_strided` with strides that were not taken from the tensor.

What it means
    `x.as_strided(size, stride)` reads the memory of `x` at these strides, however `x` lies. Where they were computed
    from sizes or written as numbers, the result is right for one layout and holds other elements for another, without
    an error.

Why it happens
    The code was written for a contiguous tensor. A transpose, a slice or channels_last further up changes the strides,
    and `as_strided` does not look at them.

How to fix it
    Compute from `x.stride()`, use `unfold` for windows and `expand` for repeats, or call `x.contiguous()` first. It is
    off by default because few files call `as_strided`, and most of those make the tensor themselves.

When to ignore it
    When the function's callers promise a contiguous tensor.
"""

import ast
from collections.abc import Iterator

from stridewise.linter.module import Module
from stridewise.linter.rule import Fires, Problem
from stridewise.source.file import Function

SEVERITY = "warning"
DEFAULT = False
WORDS = ("as_strided", "as_strided_")
_FRESH = ("zeros", "ones", "empty", "full", "arange", "rand", "randn", "tensor")

FIRES = (
    Fires(
        """
import torch

def windows(x, width):
    rows, columns = x.shape
    return x.as_strided((rows, columns - width + 1, width), (columns, 1, 1))

def program():
    x = torch.arange(6.0).view(3, 2).t()
    return windows(x, 2), x.unfold(1, 2, 1)
"""
    ),
    Fires(
        """
import torch

def diagonal(x):
    step = x.size(1) + 1
    return torch.as_strided(x, (2,), stride=(step,))

def program():
    x = torch.arange(6.0).view(3, 2).t()
    return diagonal(x), x.diagonal()
"""
    ),
)
QUIET = (
    """
import torch

def windows(x, width):
    rows, columns = x.shape
    down, right = x.stride()
    return x.as_strided((rows, columns - width + 1, width), (down, right, right))

def copied(x, width):
    x = x.contiguous()
    rows, columns = x.shape
    return x.as_strided((rows, columns - width + 1, width), (columns, 1, 1))

def checked(x, width):
    assert x.is_contiguous()
    return x.as_strided((x.shape[0], x.shape[1] - width + 1, width), (x.shape[1], 1, 1))

def own(width):
    return torch.arange(8.0).as_strided((8 - width + 1, width), (1, 1))

def program():
    x = torch.arange(6.0).view(3, 2).t()
    return windows(x, 2), copied(x, 2), checked(x.contiguous(), 2), own(2), x.unfold(1, 2, 1)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `as_strided` on a tensor whose strides the function never asks for, and that may lie otherwise."""
    for call in module.calls(*WORDS):
        function = module.function(call)
        tensor, stride = _parts(module, call)
        if function is None or tensor is None or stride is None or _asks(function):
            continue
        value = module.value(tensor)
        if value.is_contiguous or value.op in _FRESH or value.kind == "array":
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` reads the memory of `{module.text(tensor)}` by `{module.text(stride)}`, however it "
            "lies: other elements, and no error, for a tensor that is not laid out so.",
            advice="Compute from its `.stride()`, use `unfold` or `expand`, or make it contiguous first.",
        )


def _parts(module: Module, call: ast.Call) -> tuple[ast.expr | None, ast.expr | None]:
    """The tensor and the strides of a call, as a method or as torch's function; None for what is not there."""
    name = module.name(call.func)
    given = list(call.args)
    if name is None and isinstance(call.func, ast.Attribute):
        given.insert(0, call.func.value)
    elif name != "torch.as_strided":
        return None, None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    tensor = given[0] if given else keywords.get("input")
    return tensor, given[2] if len(given) > 2 else keywords.get("stride")


def _asks(function: Function) -> bool:
    """Whether a function asks some tensor for its strides."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("stride", "is_contiguous") for node in ast.walk(function)
    )
