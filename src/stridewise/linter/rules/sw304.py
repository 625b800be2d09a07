"""SW304 write-to-maybe-copy: a write through `reshape`, `flatten` or `contiguous` may go to a copy.

What it means
    `x.flatten()[i] = v`, `x.reshape(-1).add_(1)`, `x.contiguous().zero_()` and `dist.all_reduce(x.contiguous())` change
    `x` if the call before the write gave a view of it. If it had to copy, the copy is changed and thrown away, and `x`
    stays as it was.

Why it happens
    `reshape`, `flatten`, `ravel` and `contiguous` copy where the strides ask for it, and only there: the statement
    works until `x` comes transposed, sliced, expanded or in channels_last. `to`, `float`, `cuda` and their like copy
    where the dtype or the device differs. Nothing is raised in either case.

How to fix it
    Write through a view: `x.view(-1)[i] = v` raises where it can't be one, `x.zero_()` needs no other layout. Or bind
    the copy, change it, and `x.copy_` it back. The fix raises where the write was lost: it is not made unasked.

When to ignore it
    When `x` is contiguous in every run. Where the source shows that it is, or asks, the rule is quiet.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module, Scope
from stridewise.linter.names import last_name
from stridewise.linter.reading.tensors import is_array, is_named, is_tensor, root_name
from stridewise.linter.reading.writes import (
    COLLECTIVES,
    Write,
    may_be_written,
    view_of,
    viewed,
    write_to,
    writes_to_name,
)
from stridewise.linter.rule import Fires, Problem

SEVERITY = "error"
_BY_LAYOUT = ("reshape", "reshape_as", "flatten", "ravel", "contiguous")
_CASTS = ("to", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda")
WORDS = (*_BY_LAYOUT, *_CASTS)
_SURE_WRITES = frozenset(
    (
        *("add_", "sub_", "mul_", "div_", "zero_", "fill_", "copy_", "clamp_", "masked_fill_", "index_fill_", "pow_"),
        *("normal_", "uniform_", "bernoulli_", "random_", "scatter_", "index_add_", "index_copy_", "neg_", "exp_"),
    )
)
"""What no module of somebody's has as a method that is called behind its `.to(…)`."""

FIRES = (
    Fires(
        """
import torch

def mark(x):
    x.flatten()[0] = 1.0
    x.reshape(-1).add_(1)
    x.contiguous().mul_(2)
    return x

def program():
    return mark(torch.ones(2, 3).t())
""",
        fixed="""
import torch

def mark(x):
    x.view(-1)[0] = 1.0
    x.view(-1).add_(1)
    x.mul_(2)
    return x

def program():
    return mark(torch.ones(2, 3).t())
""",
        count=3,
    ),
    Fires(
        """
import torch

def program():
    x = torch.ones(2, 3).t()
    flat = x.reshape(-1)
    flat[0] = 5.0
    flat[1:].zero_()
    return x
""",
        fixed="""
import torch

def program():
    x = torch.ones(2, 3).t()
    flat = x.view(-1)
    flat[0] = 5.0
    flat[1:].zero_()
    return x
""",
    ),
    Fires(
        """
import torch

def scaled(x):
    y = x.contiguous().mul_(2)
    return x, y

def program():
    return scaled(torch.ones(2, 3))
"""
    ),
    Fires(
        """
import torch
import torch.distributed as dist

def synchronise(gradient):
    dist.all_reduce(gradient.contiguous())
    return gradient

def program():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    synchronise(torch.ones(2, 3).t())
    dist.destroy_process_group()
"""
    ),
    Fires(
        """
import torch

def program():
    x = torch.ones(2, 3, dtype=torch.float64)
    x.float()[0] = 5.0
    x.half().zero_()
    return x
""",
        count=2,
    ),
    Fires(
        """
import torch

def clear(x, dtype, total):
    x.to(dtype).zero_()
    torch.add(x.sum(0), 1, out=total.reshape(-1))
    torch.flatten(x)[0] = 2.0
    return x

def program():
    return clear(torch.ones(2, 3), torch.float64, torch.zeros(3))
""",
        fixed="""
import torch

def clear(x, dtype, total):
    x.to(dtype).zero_()
    torch.add(x.sum(0), 1, out=total.view(-1))
    torch.flatten(x)[0] = 2.0
    return x

def program():
    return clear(torch.ones(2, 3), torch.float64, torch.zeros(3))
""",
        count=3,
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.ones(2, 3)
    x.flatten()[0] = 1.0
    x.view(-1)[1] = 1.0
    return x
""",
    """
import torch

def program(x=torch.ones(2, 3).t()):
    flat = x.reshape(-1)
    flat[0] = 1.0
    return flat
""",
    """
import torch

def program(x=torch.ones(2, 3).t()):
    x = x.float().mul_(2)
    (x + 1).contiguous().zero_()
    x.clone().reshape(-1).fill_(1)
    return x.reshape(-1).clone().add_(1)
""",
    """
import torch

def program(model=torch.nn.Linear(2, 2)):
    model.to(torch.float32).requires_grad_(False)
    model.weight.to(torch.float32).requires_grad_(False)
    return model
""",
    """
import numpy as np
import torch

def program():
    a = np.ones((2, 3))
    a.reshape(-1)[0] = 5
    return torch.from_numpy(a)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Writes to what such a call gave, at once or by the one name that it got."""
    for call in module.calls(*WORDS):
        base = _base(module, call)
        if base is None:
            continue
        write = write_to(module, call)
        if write is None:
            problem = _through_name(module, call, base)
        elif write.used:
            problem = _also_written(module, call, base, write)
        else:
            problem = _lost(module, call, base, write)
        if problem is not None and _may_copy(module, call, base):
            yield problem


def _base(module: Module, call: ast.Call) -> ast.expr | None:
    """What the call copies or not, if it has a name: what is written to a value of its own is lost in any case."""
    name = module.name(call.func)
    if name in ("torch.reshape", "torch.flatten", "torch.ravel"):
        base = call.args[0] if call.args else None
    else:
        base = call.func.value if name is None and isinstance(call.func, ast.Attribute) else None
    if base is None or isinstance(base, ast.Starred) or not is_named(viewed(base)):
        return None
    return None if isinstance(base, ast.Name) and base.id in ("self", "cls") else base


def _may_copy(module: Module, call: ast.Call, base: ast.expr) -> bool:
    value = module.value(base)
    if value.kind == "other" or is_array(module, value):
        return False
    return last_name(call.func) in _CASTS or not (value.is_contiguous or _is_asked(module, call, base))


def _is_asked(module: Module, call: ast.Call, base: ast.expr) -> bool:
    """Whether the function looks at the layout of the same expression."""
    if b"is_contiguous" not in module.source.content:
        return False
    text = ast.unparse(base)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "is_contiguous" and ast.unparse(node.value) == text
        for node in ast.walk(module.scope(call))
    )


def _lost(module: Module, call: ast.Call, base: ast.expr, write: Write) -> Problem | None:
    if last_name(call.func) in _CASTS and not (
        write.method in _SURE_WRITES or (write.method is None and is_tensor(module, module.value(base)))
    ):
        return None
    name, text = module.text(base), module.text(write.node)
    # Handed over as it lies, a strided tensor would be taken for a dense one.
    collective = write.method in COLLECTIVES and last_name(call.func) == "contiguous"
    return Problem(
        call,
        f"`{text}` changes `{name}` only if `{last_name(call.func)}` gives a view of it: where that copies, the write "
        "is lost.",
        advice=_advice(call, name),
        edits=() if collective else _fix(module, call),
    )


def _also_written(module: Module, call: ast.Call, base: ast.expr, write: Write) -> Problem | None:
    if last_name(call.func) in _CASTS or not _is_seen(module, call, viewed(base)):
        return None
    name, text = module.text(base), module.text(write.node)
    return Problem(
        call,
        f"`{text}` changes `{name}` as well if `{last_name(call.func)}` gives a view of it, and not where that copies.",
        advice=f"Write the function that is not in place, or `.clone()`, if `{name}` is to stay as it is.",
    )


def _through_name(module: Module, call: ast.Call, base: ast.expr) -> Problem | None:
    """The problem of a name that is written to and never read: what is written must be meant for the base."""
    holder = view_of(module, call)
    statement = module.parent(holder)
    if last_name(call.func) in _CASTS or not isinstance(statement, ast.Assign) or statement.value is not holder:
        return None
    match statement.targets:
        case [ast.Name(id=name)] if name != root_name(viewed(base)):
            pass
        case _:
            return None
    scope = module.scope(call)
    if not may_be_written(module, scope, name) or not _is_only_written(scope, name):
        return None
    text = module.text(base)
    return Problem(
        call,
        f"What is written to `{name}` changes `{text}` only if `{last_name(call.func)}` gives a view of it: where that "
        "copies, the writes are lost.",
        advice=_advice(call, text),
        edits=_fix(module, call),
    )


def _is_only_written(scope: Scope, name: str) -> bool:
    writes = list(writes_to_name(scope, name))
    places = {place for _, place in writes}
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    others = [node for node in names if node not in places]
    return (
        bool(writes)
        and not any(write.used for write, _ in writes)
        and len(others) == 1  # where it is bound
        and not any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in ast.walk(scope))
    )


def _is_seen(module: Module, call: ast.Call, root: ast.expr) -> bool:
    """Whether somebody reads the base after the statement, who sees the change or not."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if any(ast.unparse(target) == ast.unparse(root) for target in targets):
        return False
    if not isinstance(root, ast.Name) or module.value(root).op == "parameter":
        return True
    after = [
        node
        for node in ast.walk(module.scope(call))
        if isinstance(node, ast.Name) and node.id == root.id and node.lineno > (statement.end_lineno or 0)
    ]
    first = min((node.lineno for node in after), default=0)
    return any(isinstance(node.ctx, ast.Load) for node in after if node.lineno == first)


def _advice(call: ast.Call, base: str) -> str:
    if last_name(call.func) == "contiguous":
        return f"Write to `{base}` itself, or bind the copy, change it, and `{base}.copy_(…)` it back."
    if last_name(call.func) in _CASTS:
        return f"Write to `{base}` itself, or bind the result."
    return "Write through `.view(…)`, which raises where it would have to copy."


def _fix(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """The call that gives a view or raises in the place of the one that may copy."""
    source = module.source
    if module.name(call.func) is not None or call.keywords:
        return ()
    method = last_name(call.func)
    (start, end), (_, after) = source.span(call), source.span(call.func)
    before, arguments = source.decode((start, after)).removesuffix(method), source.decode((after, end))
    if method == "contiguous" and not call.args:
        text = before.rstrip().removesuffix(".").rstrip()
    elif method in ("flatten", "ravel") and not call.args:
        text = f"{before}view(-1)"
    elif method in ("reshape", "reshape_as"):
        text = before + method.replace("reshape", "view") + arguments
    else:
        return ()
    return (Edit(source.name, (start, end), text, "unsafe"),)
