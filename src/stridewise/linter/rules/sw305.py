"""SW305 write-to-expanded: an in-place write to what `expand` gave reaches many elements at once, or raises.

What it means
    `y = x.expand(4, 3)` repeats one row by a stride of 0: `y[0] = v` changes all rows of `y`, and `x`. In-place methods
    and assignments to more than one of the repeated elements mostly raise ("more than one element of the written-to
    tensor refers to a single memory location"); `masked_fill_` and writes by an index tensor only warn.

Why it happens
    `expand`, `expand_as` and `broadcast_to` make a view that copies nothing; `meshgrid` and `broadcast_tensors` make
    one of each tensor. Such a view has the shape of a full tensor, and reads like one.

How to fix it
    Make a tensor with memory of its own before it is written: `x.expand(4, 3).clone()`, or `x.repeat(4, 1)`. `x` is no
    longer changed then: no fix is made unasked.

When to ignore it
    When one element is meant to change for all: write to `x` then, which says so.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from stridewise.findings import Edit
from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module, Scope
from stridewise.linter.reading.expansion import is_whole
from stridewise.linter.reading.tensors import is_array
from stridewise.linter.reading.writes import Write, may_be_written, view_of, viewed, write_to, writes_to_name
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits as editing

SEVERITY = "error"
_SEVERAL = ("torch.meshgrid", "torch.broadcast_tensors")
"""Functions that give an expanded view of each tensor that goes in."""
_NAMES = ("expand", "expand_as", "broadcast_to", "meshgrid", "broadcast_tensors")
WORDS = _NAMES
_ALIKE = ("zero_", "fill_")
"""Methods after which all elements are equal, repeated ones included."""

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(1, 3)
    y = x.expand(4, 3)
    y[0] = 1.0
    return y
""",
        fixed="""
import torch

def program():
    x = torch.zeros(1, 3)
    y = x.expand(4, 3).clone()
    y[0] = 1.0
    return y
""",
    ),
    Fires(
        """
import torch

def program():
    mask = torch.zeros(3)
    rows = mask[None].expand(2, -1)
    rows[1].add_(1)
    return mask
""",
        fixed="""
import torch

def program():
    mask = torch.zeros(3)
    rows = mask[None].expand(2, -1).clone()
    rows[1].add_(1)
    return mask
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(3)
    wide = torch.broadcast_to(x, (2, 3)).t()
    wide += 1
    return wide
""",
        fixed="""
import torch

def program():
    x = torch.zeros(3)
    wide = torch.broadcast_to(x, (2, 3)).clone().t()
    wide += 1
    return wide
""",
    ),
    Fires(
        """
import torch

def program(other=torch.zeros(2, 3)):
    x = torch.zeros(1, 3)
    x.expand_as(other)[0, 1] = 7.0
    x.expand(2, 3).add_(1)
    return x
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    x = torch.arange(3.0)
    rows, columns = torch.meshgrid(x, torch.arange(4.0), indexing="ij")
    columns[0] = 7.0
    x, wide = torch.broadcast_tensors(x, torch.zeros(2, 1))
    wide += 1
    return columns
""",
        count=2,
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(1, 3)
    y = x.expand(4, 3).clone()
    y[0] = 1.0
    z = x.expand(4, 3).contiguous()
    z[0] = 1.0
    w = x.expand(4, 3)
    w = w + 1
    w[0] = 1.0
    return y, z, w
""",
    """
import torch

def program():
    x = torch.zeros(3)
    y = x[None].expand(1, -1)
    y[0] = 1.0
    y.add_(1)
    (z,) = torch.meshgrid(x, indexing="ij")
    z += 1
    rows, columns = torch.meshgrid(x, x, indexing="ij")
    rows = rows * 2
    rows += 1
    columns.zero_()
    return y
""",
    """
import torch

def program(more=True):
    x = torch.zeros(1, 3)
    y = x.expand(4, 3)
    if more:
        y = y.repeat(1, 2)
        y[:, 0] = 1.0
    y = torch.zeros_like(x.expand(4, 3))
    y[0] = 1.0
    return y
""",
    """
import torch

def program():
    y = torch.zeros(1, 3).expand(4, 3)
    y.fill_(2.0)
    return y
""",
    """
import numpy as np
import torch

def program():
    a = np.broadcast_to(np.zeros(3), (2, 3)).copy()
    a[0] = 1
    return torch.from_numpy(a)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Writes to what such a call gave, at once or by the name that it got."""
    for call in module.calls(*_NAMES):
        if not _may_repeat(module, call):
            continue
        write = write_to(module, call)
        if write is None:
            problem = _through_name(module, call)
        else:
            problem = None if _is_alike(write) else _problem(module, call, write, ())
        if problem is not None and _is_of_tensor(module, call) and not _is_whole(module, call):
            yield problem


def _through_name(module: Module, call: ast.Call) -> Problem | None:
    holder = view_of(module, call)
    statement = module.parent(holder)
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is holder:
            names = [name]
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is holder:
            names = [name]
        case ast.Assign(targets=[ast.Tuple(elts=parts)], value=value) if value is call and _gives_several(module, call):
            names = [part.id for part in parts if isinstance(part, ast.Name)]
        case _:
            return None
    scope = module.scope(call)
    for name in (*names, *_views_of(module, scope, names)):
        if not may_be_written(module, scope, name):
            continue
        for write, place in writes_to_name(scope, name):
            if not _is_alike(write) and _is_view_of(module, module.value(place, scope), call):
                several = _gives_several(module, call)
                edits = () if several else (editing.append(module.source, call, ".clone()"),)
                return _problem(module, call, write, edits)
    return None


def _views_of(module: Module, scope: Scope, names: Sequence[str]) -> Iterator[str]:
    """The names that are bound to a view of what has one of some names."""
    source = module.source
    text = "|".join(map(re.escape, names)).encode(source.encoding)
    if re.search(rb"=\s*(?:%s)\s*[.\[]" % text, source.content) is None:  # quicker than to look at all nodes
        return
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is not viewed(value):
                base = viewed(value)
                if isinstance(base, ast.Name) and base.id in names and name not in names:
                    yield name


def _problem(module: Module, call: ast.Call, write: Write, edits: tuple[Edit, ...]) -> Problem:
    text, written = module.text(call), module.text(write.node)
    return Problem(
        call,
        f"`{written}` writes to what `{text}` gave, where one element in memory stands for many: all of them change, "
        "or it raises.",
        advice=f"Write `{text}.clone()`, which has memory for each." if edits else "Write to a `.clone()` of it.",
        edits=edits,
    )


def _may_repeat(module: Module, call: ast.Call) -> bool:
    """Whether a call repeats something: sizes of -1 and 1 do not."""
    name = module.name(call.func)
    if name in _SEVERAL:
        return len(call.args) > 1 or any(isinstance(each, ast.Starred) for each in call.args)
    if name is not None:
        return name == "torch.broadcast_to"
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    return isinstance(call.func, ast.Attribute) and (bool(call.keywords) or not all(_is_one(size) for size in sizes))


def _is_whole(module: Module, call: ast.Call) -> bool:
    """Whether a call gives a tensor the sizes that it has."""
    return not _gives_several(module, call) and is_whole(module, module.value(call))


def _is_of_tensor(module: Module, call: ast.Call) -> bool:
    """Whether nothing tells that what is expanded is no tensor."""
    if module.name(call.func) is not None or not isinstance(call.func, ast.Attribute):
        return True
    base = call.func.value
    if isinstance(base, ast.Name) and base.id in ("self", "cls"):
        return False
    value = module.value(base)
    return value.kind != "other" and not is_array(module, value)


def _is_one(size: ast.expr) -> bool:
    """Whether a size is 1, or -1 for as it is."""
    if isinstance(size, ast.UnaryOp) and isinstance(size.op, ast.USub):
        size = size.operand
    return isinstance(size, ast.Constant) and size.value == 1


def _is_alike(write: Write) -> bool:
    return write.whole and write.method in _ALIKE


def _gives_several(module: Module, call: ast.Call) -> bool:
    return module.name(call.func) in _SEVERAL


def _is_view_of(module: Module, value: Value, call: ast.Call) -> bool:
    """Whether a value is what the call gave, or a view of it for sure."""
    while value.node is not call:
        if value.of is None or value.memory not in ("view", "same"):
            return False
        value = value.of
    return value.state is State.EXPANDED or _gives_several(module, call)
