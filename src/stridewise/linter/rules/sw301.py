"""SW301 discarded-result: the result of a call that changes nothing in place is thrown away.

What it means
    `x.contiguous()`, `x.transpose(0, 1)` or `x.unsqueeze(1)` stands alone as a statement. These give another tensor and
    leave `x` as it is: the statement does nothing.

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
from collections.abc import Iterable, Iterator

from stridewise.findings import Edit
from stridewise.linter.facts.effects import FUNCTIONS, METHODS, Effect
from stridewise.linter.module import Module
from stridewise.linter.reading.tensors import before_casts, defines, is_array, is_named, is_tensor
from stridewise.linter.rule import Fires, Problem

SEVERITY = "error"
_LAYOUT = (Effect.PERMUTED, Effect.EXPANDED, Effect.RESHAPED)
_ONLY_TENSORS = frozenset(
    (
        "contiguous",
        "unsqueeze",
        "permute",
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
_OF_SIZES = frozenset(("transpose", "squeeze", "view", "expand", "reshape", "flatten"))
"""Others have these too, but not with numbers as arguments."""
_NAMES = tuple(
    sorted(
        {name for name, effect in METHODS.items() if effect in _LAYOUT}
        | {*_ONLY_TENSORS, *_OF_SIZES, "ravel", "to", "type_as", "narrow", "diagonal"}
    )
)
WORDS = _NAMES
_CHECKED = ("raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertWarnsRegex", "suppress")
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
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of such methods and functions that are statements."""
    for call in module.calls(*_NAMES):
        statement = module.parent(call)
        if not isinstance(statement, ast.Expr):
            continue
        base = _base(module, call)
        if base is None or not _is_layout_call(module, call, base) or _is_meant(module, statement):
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` leaves `{module.text(base)}` as it is, and what it gives is thrown away: the "
            "statement does nothing.",
            advice="Bind the result, or delete the statement.",
            edits=_fix(module, call, base),
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
    value = module.value(base)
    if is_tensor(module, value):
        return True
    if value.kind == "other" or is_array(module, value):
        return False
    if method == "to":  # arrays have none, and modules not the method that made this
        return before_casts(value).op in METHODS
    if method not in _ONLY_TENSORS and not (method in _OF_SIZES and any(_is_number(each) for each in call.args)):
        return False
    return not any(keyword.arg == "inplace" for keyword in call.keywords) and not defines(module, method)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_meant(module: Module, statement: ast.Expr) -> bool:
    """Whether it is called for its error, for its time, or to be shown as a cell's result."""
    if module.parent(statement) is module.source.tree and module.source.is_shown(statement):
        return True
    parent = module.parent(statement)
    if isinstance(parent, ast.Try) and parent.handlers and parent.body and parent.body[-1] is statement:
        return True
    if isinstance(parent, ast.FunctionDef) and all(_is_idle(each) for each in parent.body if each is not statement):
        return True
    if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and parent.target.id == "_":
        return True  # the same again and again: to warm up, or to take the time
    above = list(module.above(statement))
    if any(isinstance(each, (ast.With, ast.AsyncWith)) and _calls(each.items, _CHECKED) for each in above):
        return True
    return _calls([module.scope(statement)], _TIMED)


def _calls(parts: Iterable[ast.AST], names: tuple[str, ...]) -> bool:
    """Whether a function of one of these last names is called in some nodes."""
    calls = (node.func for part in parts for node in ast.walk(part) if isinstance(node, ast.Call))
    return any(
        (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)) in names
        for function in calls
    )


def _is_idle(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _fix(module: Module, call: ast.Call, base: ast.expr) -> tuple[Edit, ...]:
    """Bind the result to the name. Not to an attribute: a parameter takes no other tensor."""
    if not isinstance(base, ast.Name) or not _is_bound(module, base):
        return ()
    text = f"{base.id} = {module.source.source(call)}"
    return (Edit(module.source.name, module.source.span(call), text, "unsafe"),)


def _is_bound(module: Module, name: ast.Name) -> bool:
    """Whether a name belongs to the scope where it stands: else to bind it there would make another of it."""
    scope = module.scope(name)
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    arguments = scope.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    if any(each.arg == name.id for each in every):
        return True
    return any(
        isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Store)
        for node in ast.walk(scope)
    )
