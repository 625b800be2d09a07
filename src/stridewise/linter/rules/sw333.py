"""SW333 from-numpy-transposed: a tensor made from a transposed array is strided from its first use on.

What it means
    `torch.from_numpy(a.T)` shares the memory of `a`, so the tensor has the strides of the transposed array. It works
    everywhere, but operators that need it contiguous copy it, each anew, and elementwise ones pass the order on.

Why it happens
    Numpy's `transpose`, `.T`, `swapaxes` and `moveaxis` are views, and `from_numpy` keeps strides. Channels that are
    moved in front of height and width (`transpose(2, 0, 1)`, `transpose(0, 3, 1, 2)`) are left alone: such an image is
    channels_last, the fast format for convolutions.

How to fix it
    `torch.from_numpy(np.ascontiguousarray(a.T))` copies once. The tensor no longer shares the array's memory then, so
    no fix is made unasked.

When to ignore it
    For a tensor that is used once, or that must share the array's memory. The rule is off by default because most are.
"""

import ast
from collections.abc import Iterator

from stridewise.linter.module import Module
from stridewise.linter.rule import Fires, Problem
from stridewise.source.edits import replace

SEVERITY = "warning"
DEFAULT = False
WORDS = ("from_numpy",)
_METHODS = ("transpose", "swapaxes")
_FUNCTIONS = tuple(f"numpy.{name}" for name in ("transpose", "swapaxes", "moveaxis", "rollaxis"))
_CHANNELS_LAST = ((2, 0, 1), (0, 3, 1, 2))
"""Orders that make channels_last images of what was (…, height, width, channels)."""
_REPAIRS = ("contiguous", "clone", "tolist", "item")
"""What follows and takes the strides away, or has no use for them."""

FIRES = (
    Fires(
        """
import numpy as np
import torch

def program():
    table = np.arange(6.0).reshape(2, 3)
    return torch.from_numpy(table.T)
""",
        fixed="""
import numpy as np
import torch

def program():
    table = np.arange(6.0).reshape(2, 3)
    return torch.from_numpy(np.ascontiguousarray(table.T))
""",
    ),
    Fires(
        """
import numpy
import torch

def program():
    table = numpy.arange(24.0).reshape(2, 3, 4)
    moved = numpy.moveaxis(table, 0, 2)
    return torch.from_numpy(moved).float()
""",
        fixed="""
import numpy
import torch

def program():
    table = numpy.arange(24.0).reshape(2, 3, 4)
    moved = numpy.moveaxis(table, 0, 2)
    return torch.from_numpy(numpy.ascontiguousarray(moved)).float()
""",
    ),
)
QUIET = (
    """
import numpy as np
import torch

def program():
    table = np.arange(6.0).reshape(2, 3)
    image = torch.from_numpy(np.zeros((4, 4, 3)).transpose(2, 0, 1))
    copied = torch.from_numpy(np.ascontiguousarray(table.T))
    return copied + torch.from_numpy(table.T).contiguous() + torch.from_numpy(table.T.copy())
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `from_numpy` on an array whose dimensions were put in another order."""
    for call in module.calls("from_numpy"):
        if module.name(call.func) != "torch.from_numpy" or len(call.args) != 1 or call.keywords:
            continue
        array = call.args[0]
        made = _transposed(module, array)
        after = module.parent(call)
        if made is None or (isinstance(after, ast.Attribute) and after.attr in _REPAIRS):
            continue
        numpy = _numpy(module)
        text = module.source.source(array)
        yield Problem(
            call,
            f"`{module.text(call)}` has the strides of a transposed array: what needs it contiguous copies it at each "
            "use.",
            advice="Copy it once: `np.ascontiguousarray(...)`.",
            edits=(replace(module.source, array, f"{numpy}.ascontiguousarray({text})"),) if numpy else (),
            origin=made if made is not array else None,
        )


def _transposed(module: Module, array: ast.expr) -> ast.expr | None:
    """The expression that transposes an array, where that is what an expression gives; None if it gives another."""
    made = array if not isinstance(array, ast.Name) else module.value(array).node
    match made:
        case ast.Call() if _order(made)[-4:] in _CHANNELS_LAST:
            return None
        case ast.Attribute(attr="T"):
            return made
        case ast.Call(func=ast.Attribute(attr=name)) if name in _METHODS or module.name(made.func) in _FUNCTIONS:
            return made
    return None


def _order(call: ast.Call) -> tuple[object, ...]:
    """The constants in which a call's arguments end, as far as they are written there: `(2, 0, 1)`."""
    last = call.args[-1] if call.args else None
    given = last.elts if isinstance(last, (ast.Tuple, ast.List)) else call.args
    return tuple(each.value for each in given if isinstance(each, ast.Constant))


def _numpy(module: Module) -> str | None:
    """The name under which the file has numpy."""
    return next((name for name, target in module.names.targets.items() if target == "numpy"), None)
