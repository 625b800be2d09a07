"""SW301 discarded-result: the result of a layout call or of a conversion is thrown away.

What it means
    `x.contiguous()`, `x.transpose(0, 1)`, `x.unsqueeze(1)` or, of a tensor, `x.to(device)`, `x.cuda()` or `x.float()`
    stands alone as a statement. These give another tensor and leave `x` as it is: the statement does nothing.

Why it happens
    The name sounds as if it acted on `x`, as `model.to(...)` does on a module, or the assignment was lost in an edit.
    What follows then works on the layout or the shape that `x` had before, and often goes on without an error.

How to fix it
    Bind the result: `x = x.contiguous()`. Whoever reads `x` afterwards gets another tensor then, so no fix is made
    unasked. If the statement was never needed, delete it.

When to ignore it
    Where it is called for its time or for its error. It is quiet where that shows: between readings of a clock, in
    `pytest.raises`, at the end of a `try`, in a function that does nothing else.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.facts.effects import FUNCTIONS, METHODS, OF_ANYTHING, Effect
from stridewise.linter.facts.value import Value
from stridewise.linter.module import Module, Scope
from stridewise.linter.names import last_name
from stridewise.linter.reading.checked import calls, is_error_wanted, is_tried
from stridewise.linter.reading.loaders import is_from_loader
from stridewise.linter.reading.tensors import (
    asked_of,
    before_casts,
    defines,
    is_array,
    is_named,
    is_tensor,
    is_tensor_name,
    seems_tensor,
)
from stridewise.linter.rule import Fires, Problem

SEVERITY = "error"
_LAYOUT = (Effect.PERMUTED, Effect.EXPANDED, Effect.RESHAPED)
_ONLY_TENSORS = frozenset(
    (
        "contiguous",
        "unsqueeze",
        "swapdims",
        "swapaxes",
        "movedim",
        "moveaxis",
        "expand_as",
        "view_as",
        "unflatten",
    )
)
"""Methods that hardly anything but a tensor has."""
_OF_SIZES = frozenset(("transpose", "permute", "squeeze", "view", "expand", "reshape", "flatten"))
"""Charts, trees and scores have these too, with numbers as well."""
_MOVES = frozenset(("to", "cuda", "cpu", "half", "float", "double", "bfloat16"))
"""Modules have these too, and change themselves."""
_NAMES = tuple(
    sorted(
        {name for name, effect in METHODS.items() if effect in _LAYOUT}
        | {*_ONLY_TENSORS, *_OF_SIZES, *_MOVES, "ravel", "type_as", "narrow", "diagonal"}
    )
)
WORDS = _NAMES
_PAIRED = ("transpose", "swapdims", "swapaxes", "movedim", "moveaxis")
"""Methods that take two arguments, if they are a tensor's."""
_TIMED = (
    *("time", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "elapsed_time", "synchronize"),
    *("timeit", "Timer", "profile", "record_function", "do_bench"),
)

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
    Fires(
        """
import torch

def widen(mask):
    if mask.dim() == 2:
        mask.unsqueeze(1)
    torch.transpose(mask, 0, 1)
    return mask

def program():
    return widen(torch.zeros(2, 3))
""",
        fixed="""
import torch

def widen(mask):
    if mask.dim() == 2:
        mask = mask.unsqueeze(1)
    mask = torch.transpose(mask, 0, 1)
    return mask

def program():
    return widen(torch.zeros(2, 3))
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    image = torch.zeros(1, 3, 4, 4)
    image.to(memory_format=torch.channels_last)
    image.to(torch.float64)
    return image
""",
        fixed="""
import torch

def program():
    image = torch.zeros(1, 3, 4, 4)
    image = image.to(memory_format=torch.channels_last)
    image = image.to(torch.float64)
    return image
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    loader = torch.utils.data.DataLoader([(torch.zeros(3), torch.ones(3))], batch_size=1)
    for images, masks in loader:
        images.to(torch.float64)
        masks.half()
    return images, masks
""",
        fixed="""
import torch

def program():
    loader = torch.utils.data.DataLoader([(torch.zeros(3), torch.ones(3))], batch_size=1)
    for images, masks in loader:
        images = images.to(torch.float64)
        masks = masks.half()
    return images, masks
""",
        count=2,
    ),
    Fires(
        """
import torch

class Holder:
    def __init__(self):
        self.weight = torch.zeros(2, 3).t()

    def pack(self):
        self.weight.contiguous()
        return self.weight

def program():
    return Holder().pack()
"""
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
    """
import torch

def program(model=torch.nn.Linear(2, 2)):
    model.to(torch.float64)
    model.to(memory_format=torch.contiguous_format)
    model = model.to("cpu")
    model.to(torch.float32)
    for layer in (model, torch.nn.ReLU()):
        layer.double()
    return model
""",
    """
import numpy as np
import torch

def program():
    a = np.zeros((2, 3))
    a.reshape(3, 2)
    return torch.from_numpy(a)
""",
    """
import contextlib
import time
import torch

def program():
    x = torch.zeros(2, 3)
    with contextlib.suppress(RuntimeError):
        x.t().view(-1)
    try:
        x.expand(4, 3)
    except RuntimeError:
        print("no")

def measure(x):
    start = time.perf_counter()
    x.contiguous()
    return time.perf_counter() - start

def called_by_a_timer(x):
    x.contiguous()
""",
    """
import torch

class Score:
    def transpose(self, steps):
        self.steps = steps

def program():
    score = Score()
    score.transpose(2)
    return torch.tensor(score.steps)
""",
    """
import torch

def show(chart, tree, ax):
    ax.view(1)
    chart.view(1, 2)
    tree.expand(2)
    tree.permute()
    return ax

def program():
    return torch.zeros(2)
""",
)


class _Scopes:
    """What is asked of scopes, each walked once."""

    def __init__(self) -> None:
        self._timed: dict[Scope, bool] = {}
        self._bound: dict[Scope, set[str]] = {}

    def is_timed(self, scope: Scope) -> bool:
        """Whether a clock is read in it."""
        if scope not in self._timed:
            self._timed[scope] = calls([scope], _TIMED)
        return self._timed[scope]

    def bound(self, scope: Scope) -> set[str]:
        """The names that are bound in it."""
        if scope not in self._bound:
            self._bound[scope] = {
                node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
        return self._bound[scope]


def check(module: Module) -> Iterator[Problem]:
    """Calls of such methods and functions that are statements."""
    scopes = _Scopes()
    for call in module.calls(*_NAMES):
        statement = module.parent(call)
        if not isinstance(statement, ast.Expr):
            continue
        base = _base(module, call)
        if base is None or not _is_layout_call(module, call, base) or _is_meant(module, statement, scopes):
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` leaves `{module.text(base)}` as it is, and what it gives is thrown away: the "
            "statement does nothing.",
            advice="Bind the result, or delete the statement.",
            edits=_fix(module, call, base, scopes),
        )


def _base(module: Module, call: ast.Call) -> ast.expr | None:
    """The tensor that the call leaves as it is, if it has a name: what a call before gave is gone anyway."""
    if module.name(call.func) is not None:
        base = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
    else:
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
    below = base
    while isinstance(below, ast.Call) and isinstance(below.func, ast.Attribute) and below.func.attr in _NAMES:
        below = below.func.value
    return base if below is not None and is_named(below) else None


def _is_layout_call(module: Module, call: ast.Call, base: ast.expr) -> bool:
    name = module.name(call.func)
    if name is not None:
        return FUNCTIONS.get(name) in (*_LAYOUT, Effect.MAYBE)
    assert isinstance(call.func, ast.Attribute)
    method = call.func.attr
    if isinstance(base, ast.Name) and base.id in ("self", "cls"):
        return False
    if method in _PAIRED and len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred):
        return False
    value = module.value(base)
    if is_tensor(module, value):
        return True
    if value.kind == "other" or is_array(module, value):
        return False
    if method in _MOVES:  # arrays have none, and modules not the method that made this
        return _is_made_by_method(module, before_casts(value)) or is_from_loader(module, base)
    if any(keyword.arg == "inplace" for keyword in call.keywords) or defines(module, method):
        return False
    return method in _ONLY_TENSORS or (method in _OF_SIZES and _takes_sizes(module, call, base))


def _is_made_by_method(module: Module, value: Value) -> bool:
    """Whether a tensor's method made something. Graphs and meshes have a `clone` too: there a name has to say it."""
    made: Value | None = value
    while made is not None and made.op in OF_ANYTHING:
        node = made.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_named(node.func.value):
            base = node.func.value
            return is_tensor_name(last_name(base)) or bool(asked_of(module.scope(base), base) & _ONLY_TENSORS)
        made = made.of
    return made is not None and made.op in METHODS


def _takes_sizes(module: Module, call: ast.Call, base: ast.expr) -> bool:
    """Whether numbers are handed over as only tensors take them, or to something that seems to be one."""
    only = call.args[0] if len(call.args) == 1 else None
    given = only.elts if isinstance(only, (ast.Tuple, ast.List)) else call.args
    numbers = [each for each in given if _is_number(each)]
    if not numbers:
        return False
    if len(numbers) > 1 and call.func.attr in ("transpose", "permute"):  # type: ignore[attr-defined]
        return True
    if len(given) > 1 and any(isinstance(each, ast.UnaryOp) for each in numbers):  # a size of -1
        return True
    return seems_tensor(module, base) or is_from_loader(module, base)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_meant(module: Module, statement: ast.Expr, scopes: _Scopes) -> bool:
    """Whether it is called for its error, for its time, or to be shown as a cell's result."""
    if module.parent(statement) is module.source.tree and module.source.is_shown(statement):
        return True
    parent = module.parent(statement)
    if is_tried(module, statement):
        return True
    if isinstance(parent, ast.FunctionDef) and all(_is_idle(each) for each in parent.body if each is not statement):
        return True
    if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and parent.target.id == "_":
        return True  # the same again and again: to warm up, or to take the time
    if is_error_wanted(module, statement):
        return True
    return scopes.is_timed(module.scope(statement))


def _is_idle(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _fix(module: Module, call: ast.Call, base: ast.expr, scopes: _Scopes) -> tuple[Edit, ...]:
    """Bind the result to the name. Not to an attribute: a parameter takes no other tensor."""
    if not isinstance(base, ast.Name) or not _is_bound(module, base, scopes):
        return ()
    text = f"{base.id} = {module.source.source(call)}"
    return (Edit(module.source.name, module.source.span(call), text, "unsafe"),)


def _is_bound(module: Module, name: ast.Name, scopes: _Scopes) -> bool:
    """Whether a name belongs to the scope where it stands: else to bind it there would make another of it."""
    scope = module.scope(name)
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    arguments = scope.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return any(each.arg == name.id for each in every) or name.id in scopes.bound(scope)
