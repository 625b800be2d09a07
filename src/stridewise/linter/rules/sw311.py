"""SW311 two-copies: a clone and a contiguous copy are made one after the other, where one would do.

What it means
    `x.clone().contiguous()` copies a transposed or a channels_last tensor twice: `clone` keeps the order that its
    dimensions have in memory, so `contiguous` has to copy the clone again. `x.contiguous().clone()` copies it twice
    as well: what `contiguous` made new is copied once more, to be sure that it is.

Why it happens
    What is wanted is a tensor of its own that is contiguous. Each of the two methods gives one half of that.

How to fix it
    `x.clone(memory_format=torch.contiguous_format)` gives both in one copy, whatever `x` is. Values, gradients and
    the order in memory are those of the two calls, and it is always new memory; only the strides of dimensions of
    size 1, which nothing steps over, become regular. The fix is safe where torch made `x` in the same function, else
    made on request: what else has a `clone` may not know of memory formats, as the `clone` of a subclass, or a tensor
    that `to_mkldnn()` gave.

When to ignore it
    Where `x` is contiguous in every run: then it is one copy, and the fix only says so more plainly.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit, Safety
from stridewise.linter.facts.effects import FUNCTIONS, METHODS, Effect
from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver, torch_at
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
WORDS = ("contiguous",)
JOINS = ("cat", "concat", "stack")
"""What they give is contiguous, whatever goes in, unless all of that is channels_last."""
MAKERS = frozenset(
    f"torch.{name}"
    for name in ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "zeros")
)
"""Functions that make a tensor of numbers alone: it is of torch's own class."""

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.clone().contiguous()
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.clone(memory_format=torch.contiguous_format)
""",
    ),
    Fires(
        """
import torch as th

def program(x: th.Tensor = th.zeros(2, 3).t()):
    return x.contiguous().clone().view(-1)
""",
        fixed="""
import torch as th

def program(x: th.Tensor = th.zeros(2, 3).t()):
    return x.clone(memory_format=th.contiguous_format).view(-1)
""",
    ),
    Fires(
        """
import torch

def own(x):
    return x.clone().contiguous()

def program():
    return own(torch.zeros(2, 3).t())
""",
        fixed="""
import torch

def own(x):
    return x.clone(memory_format=torch.contiguous_format)

def program():
    return own(torch.zeros(2, 3).t())
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return torch.clone(x).contiguous()
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    return torch.clone(x, memory_format=torch.contiguous_format)
""",
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.eye(3)
    return x.clone().contiguous()
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.clone(memory_format=torch.contiguous_format)
""",
    """
import torch

def program():
    x = torch.cat([torch.zeros(2, 3), torch.ones(2, 3)])
    return x.reshape(3, 4).clone().contiguous()
""",
    """
import torch

def program():
    x = torch.zeros(2, 6)[:, ::2]
    return x.clone().contiguous()
""",
    """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    return x.clone().contiguous(memory_format=torch.channels_last)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `contiguous` on a clone, and of `clone` on what `contiguous` returns."""
    for call in module.calls("contiguous", "clone"):
        function = call.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Call):
            continue
        inner = function.value
        if function.attr == "contiguous":
            inner = _attached(module, inner)
            base = _cloned(module, inner)
            base = base if base is not None and contiguous(module, call) is not None else None
        else:
            is_plain = not call.args and not call.keywords
            base = contiguous(module, inner) if is_plain and module.name(function) is None else None
        if base is None or _is_copied_once(module, base, function.attr):
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` copies twice unless `{module.text(base)}` is contiguous: "
            + _WHY[function.attr].format(tensor=module.text(base)),
            advice=f"`{' '.join(_written(module, inner, base, 'torch').split())}` gives the same in one copy.",
            edits=_fix(module, call, inner, base),
        )


_WHY = {
    "contiguous": "the clone keeps the order that `{tensor}` has in memory, and is copied again to change it.",
    "clone": "what `contiguous` has made new is copied again.",
}


def _attached(module: Module, call: ast.Call) -> ast.Call:
    """What `detach` is called on, which changes nothing in memory; any other call as it is."""
    base = receiver(module, call, "detach")
    return base if isinstance(base, ast.Call) and not call.args and not call.keywords else call


def _cloned(module: Module, call: ast.Call) -> ast.expr | None:
    """What a call without a memory format clones."""
    if not call.args and not call.keywords:
        return receiver(module, call, "clone")
    only = call.args[0] if len(call.args) == 1 and not call.keywords else None
    return only if module.name(call.func) == "torch.clone" else None


def _is_copied_once(module: Module, base: ast.expr, last: str) -> bool:
    """Whether one of the two copies nothing, or as good as never does."""
    value = module.value(base)
    if value.state in (State.PERMUTED, State.CHANNELS_LAST):
        return False
    if last == "contiguous" and value.state in (State.GAPPED, State.EXPANDED):
        return True  # the clone of a part, or of what is expanded, is contiguous
    if value.is_contiguous:
        return True
    while value.of is not None and value.memory in ("view", "maybe", "same"):
        value = value.of
    return value.op in JOINS or (value.memory == "fresh" and _is_new(module, value))


def _is_new(module: Module, value: Value) -> bool:
    """Whether a function made something that lies in order, unless options in a `**` say otherwise."""
    name = module.name(value.node.func) if isinstance(value.node, ast.Call) else None
    effect = METHODS.get(value.op or "") if name is None else FUNCTIONS.get(name)
    return effect is Effect.FRESH


def _is_plain(module: Module, value: Value) -> bool:
    """Whether a tensor is surely torch's own and strided: no subclass, no other layout."""
    made: Value | None = value
    while made is not None and made.kind == "tensor" and isinstance(made.node, ast.Call):
        call = made.node
        name = module.name(call.func)
        if name in MAKERS:
            return all(keyword.arg in ("dtype", "device", "requires_grad") for keyword in call.keywords)
        if name is not None or call.keywords or not all(map(_is_literal, call.args)):
            return False  # another tensor may have a hand in it
        made = made.of
    return False


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _fix(module: Module, call: ast.Call, inner: ast.Call, base: ast.expr) -> tuple[Edit, ...]:
    torch = torch_at(module, call)
    if torch is None or has_comment(module, base, call):
        return ()
    safety: Safety = "safe" if _is_plain(module, module.value(base)) else "unsafe"
    detached = module.source.content[module.source.span(inner)[1] : module.source.span(call.func.value)[1]]  # type: ignore[attr-defined]
    text = _written(module, inner, base, torch) + detached.decode(module.source.encoding)
    return (Edit(module.source.name, module.source.span(call), text, safety),)


def _written(module: Module, inner: ast.Call, base: ast.expr, torch: str) -> str:
    if module.name(inner.func) is not None:
        text = module.source.source(base)
        return f"{module.source.source(inner.func)}({text}, memory_format={torch}.contiguous_format)"
    return f"{before(module, inner)}.clone(memory_format={torch}.contiguous_format)"
