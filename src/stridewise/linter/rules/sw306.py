"""SW306 negative-strides: a reversed numpy array is handed to torch, which takes no negative strides.

What it means
    `torch.from_numpy(a[::-1])` raises: `a[::-1]`, `np.flip`, `np.fliplr`, `np.flipud` and `np.rot90` give views with
    negative strides, and a tensor's strides are never negative. `torch.as_tensor`, `torch.asarray`, `torch.tensor`,
    `torch.FloatTensor` and its like, and `x.new_tensor` raise as well. A view of such a view (`.transpose(2, 0, 1)`,
    `.T`, `[None]`) still has them.

Why it happens
    numpy reverses without a copy, and nothing shows it until the array reaches torch. `image[:, :, ::-1]` (from BGR to
    RGB) and random flips are the usual places; behind an `if` it raises only when the branch was taken.

How to fix it
    `.copy()` before the array is handed on, or `np.ascontiguousarray`, which also leaves the pixels of a transposed
    image side by side. Arithmetic, `.astype` and `np.concatenate` copy too. The fix changes nothing else: the call
    raised in every run, and does not any more. It is not made unasked where the error is caught, nor where the array
    may be without a reversed dimension, as with `np.rot90(a, k)` for an unknown `k`, since a copy then no longer shares
    the array's memory.

When to ignore it
    In a test of the error. It is quiet in `pytest.raises` and `assertRaises`.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from stridewise.findings import Safety
from stridewise.linter.facts.value import NUMBER
from stridewise.linter.module import Module, Scope
from stridewise.linter.reading.checked import is_error_caught, is_error_wanted
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits

SEVERITY = "error"
_TYPES = tuple(
    f"{kind}Tensor" for kind in ("", "Float", "Double", "Half", "Byte", "Char", "Short", "Int", "Long", "Bool")
)
_METHOD = "new_tensor"
_TAKERS = ("from_numpy", "as_tensor", "asarray", "tensor", *_TYPES, _METHOD)
WORDS = _TAKERS

FIRES = (
    Fires(
        """
import numpy as np
import torch

def program():
    image = np.zeros((4, 5, 3), dtype=np.float32)
    return torch.from_numpy(image[:, :, ::-1])
""",
        fixed="""
import numpy as np
import torch

def program():
    image = np.zeros((4, 5, 3), dtype=np.float32)
    return torch.from_numpy(image[:, :, ::-1].copy())
""",
    ),
    Fires(
        """
import numpy as np
import torch

def program():
    image = np.flip(np.zeros((4, 5, 3), dtype=np.float32), axis=1)
    image = image.transpose(2, 0, 1)
    return torch.as_tensor(image)
""",
        fixed="""
import numpy as np
import torch

def program():
    image = np.flip(np.zeros((4, 5, 3), dtype=np.float32), axis=1)
    image = image.transpose(2, 0, 1)
    return torch.as_tensor(image.copy())
""",
    ),
    Fires(
        """
import numpy as np
import torch

def program(k=1):
    return torch.tensor(np.rot90(np.zeros((4, 5)), k))
""",
        fixed="""
import numpy as np
import torch

def program(k=1):
    return torch.tensor(np.rot90(np.zeros((4, 5)), k).copy())
""",
    ),
    Fires(
        """
import numpy as np
import torch

def program(flip=True):
    image = np.zeros((4, 5))
    if flip:
        image = image[:, ::-1]
    return torch.from_numpy(image)
""",
        fixed="""
import numpy as np
import torch

def program(flip=True):
    image = np.zeros((4, 5))
    if flip:
        image = image[:, ::-1]
    return torch.from_numpy(image.copy())
""",
    ),
)
QUIET = (
    """
import numpy as np
import torch

def program():
    image = np.zeros((4, 5, 3), dtype=np.float32)
    half = image[:, :, ::-1] / 2
    return (
        torch.from_numpy(image[:, :, ::-1].copy()),
        torch.from_numpy(np.ascontiguousarray(np.flip(image).transpose(2, 0, 1))),
        torch.from_numpy(image[::-1].astype(np.float64)),
        torch.from_numpy(np.rot90(image, 4)),
        torch.from_numpy(image[::-1][0]),
        torch.from_numpy(image[::-1][::-1]),
        torch.from_numpy(half),
    )
""",
    """
import torch

def program():
    sizes = [1, 2, 3]
    return torch.tensor(sizes[::-1]), torch.as_tensor((1, 2)[::-1])
""",
)

_CONVERTING = ("asarray", "asanyarray")
"""Functions that copy for another dtype."""
_REVERSING = ("flip", "fliplr", "flipud", "rot90")
_VIEW_METHODS = ("transpose", "swapaxes", "view", "squeeze")
_VIEW_FUNCTIONS = ("transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze", *_CONVERTING)


class _Reversed(NamedTuple):
    """Where an array was reversed."""

    node: ast.expr
    always: bool
    """Whether a dimension has a negative stride whatever the arguments are, if the array is not empty."""


def check(module: Module) -> Iterator[Problem]:
    """Calls of torch that take a numpy array whose dimensions were reversed."""
    for call in module.calls(*_TAKERS):
        name = module.name(call.func)
        is_method = name is None and isinstance(call.func, ast.Attribute) and call.func.attr == _METHOD
        if not call.args or not (is_method or (name or "").startswith("torch.")):
            continue
        argument = call.args[0]
        is_array = name == "torch.from_numpy"  # takes nothing else; a reversed list is fine for the others
        chain = _Chain(module, module.scope(call), is_array)
        found = chain.reversed(argument) or _in_branch(module, argument, chain)
        if found is None or is_error_wanted(module, call):
            continue
        safety: Safety = "safe" if found.always and not is_error_caught(module, call) else "unsafe"
        where = "" if found.node is argument else f": `{module.text(argument)}` comes from `{module.text(found.node)}`"
        yield Problem(
            call,
            f"`{module.text(call)}` raises{'' if found.always else ' whenever a dimension was reversed'}{where}. It is "
            "a view with a negative stride, which a tensor can't have.",
            advice="Copy it first: `.copy()`, or `np.ascontiguousarray(…)`.",
            edits=(edits.append(module.source, argument, ".copy()", safety=safety),),
            origin=None if found.node is argument else found.node,
        )


class _Chain(NamedTuple):
    """Views of arrays in one function, followed to where they were reversed."""

    module: Module
    scope: Scope
    is_array: bool
    """Whether what is followed is surely an array."""

    def reversed(self, node: ast.expr) -> _Reversed | None:
        """Where an expression, or the one that a name stands for, got a negative stride that it still has."""
        match node:
            case ast.Name():
                made_by = self.module.value(node, self.scope).node
                return None if made_by is None or made_by is node else self.reversed(made_by)
            case ast.Attribute(value=base, attr="T"):
                return self.reversed(base)
            case ast.Subscript(value=base):
                before = self.reversed(base)
                if not _has_negative_step(node):
                    return before if _keeps_dimensions(node) else None
                if not all(map(self._is_basic, _items(node))):
                    return None  # an index by a list or an array copies
                # No list takes an index of several slices.
                several = isinstance(node.slice, ast.Tuple) and len(node.slice.elts) > 1
                sure = self.is_array or several or self.module.value(base, self.scope).kind == "array"
                return _Reversed(node, True) if sure and before is None else None  # twice, it may be as it was
            case ast.Call(func=function, args=arguments):
                name = self.module.name(function)
                if name is None:
                    is_view = isinstance(function, ast.Attribute) and function.attr in _VIEW_METHODS
                    if not is_view:
                        return None
                    assert isinstance(function, ast.Attribute)
                    return _squeezed(self.reversed(function.value), function.attr)
                if name.rpartition(".")[0] == "numpy" and arguments:
                    return self._of_function(node, name.rpartition(".")[2])
        return None

    def _of_function(self, call: ast.Call, name: str) -> _Reversed | None:
        before = self._replace(is_array=True).reversed(call.args[0])
        if name in _REVERSING:
            return None if before else _reversing(call, name)
        if name not in _VIEW_FUNCTIONS or call.keywords or (name in _CONVERTING and len(call.args) > 1):
            return None
        return _squeezed(before, name)

    def _is_basic(self, item: ast.expr) -> bool:
        """Whether an item of an index is surely a slice, a whole number, None or `...`."""
        if isinstance(item, ast.Slice):
            return True
        constant = _constant(item)
        if constant is None or type(constant) is int:
            return True
        is_dots = isinstance(item, ast.Constant) and item.value is ...
        return is_dots or self.module.value(item, self.scope) is NUMBER


def _squeezed(found: _Reversed | None, name: str) -> _Reversed | None:
    """What a view method leaves of it: the reversed dimension may be of size 1, and squeezed away."""
    return found._replace(always=False) if found is not None and name == "squeeze" else found


def _reversing(call: ast.Call, name: str) -> _Reversed | None:
    """What a call of `np.flip` or `np.rot90` does, by its second argument."""
    given = next((each.value for each in call.keywords if each.arg == ("k" if name == "rot90" else "axis")), None)
    given = call.args[1] if given is None and len(call.args) > 1 else given
    if given is None or name in ("fliplr", "flipud"):
        return _Reversed(call, True)
    constant = _constant(given)
    if name == "flip":
        return None if constant == () else _Reversed(call, constant is not ...)
    if not isinstance(constant, int):
        return _Reversed(call, False)
    return _Reversed(call, True) if constant % 4 else None


def _constant(node: ast.expr) -> object:
    """The value of a literal; `...` of anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...


def _has_negative_step(node: ast.Subscript) -> bool:
    return any(isinstance(item, ast.Slice) and _is_negative(item.step) for item in _items(node))


def _keeps_dimensions(node: ast.Subscript) -> bool:
    """Whether an index takes no single place, by which the reversed dimension may be gone."""
    return all(
        isinstance(item, ast.Slice) or (isinstance(item, ast.Constant) and item.value in (None, ...))
        for item in _items(node)
    )


def _items(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _is_negative(step: ast.expr | None) -> bool:
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub) and isinstance(step.operand, ast.Constant)


def _in_branch(module: Module, argument: ast.expr, chain: _Chain) -> _Reversed | None:
    """Where a name was bound to a reversed array in an `if` before the statement, with nothing in between."""
    if not isinstance(argument, ast.Name):
        return None
    statement: ast.AST = module.statement(argument)
    while isinstance(statement, ast.stmt):
        parent = module.parent(statement)
        for before in reversed(_before(parent, statement)):
            if _binds(before, argument.id):
                return _last_bound(before, argument.id, chain)
        if parent is None or isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.While)):
            return None
        statement = parent
    return None


def _before(parent: ast.AST | None, statement: ast.stmt) -> list[ast.stmt]:
    """The statements of the same block before one."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(parent, block, ())
        if statement in statements:
            return list(statements[: statements.index(statement)])
    return []


def _last_bound(statement: ast.stmt, name: str, chain: _Chain) -> _Reversed | None:
    """What a branch binds a name to last, if that is a reversed array."""
    if not isinstance(statement, ast.If):
        return None
    for branch in (statement.body, statement.orelse):
        last = next((each for each in reversed(branch) if _binds(each, name)), None)
        if last is None or isinstance(branch[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            continue
        if isinstance(last, ast.Assign):
            alone = len(last.targets) == 1 and isinstance(last.targets[0], ast.Name)
            found = chain.reversed(last.value) if alone else None
        else:
            found = _last_bound(last, name, chain)
        if found is not None:
            return found._replace(always=False)
    return None


def _binds(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(statement)
    )
