"""SW315 needless-contiguous: `.contiguous()` of a tensor that is contiguous for sure.

What it means
    `torch.zeros(2, 3).contiguous()`, `x.contiguous().contiguous()`: the tensor is contiguous, however the program
    runs. The call returns the tensor itself.

Why it happens
    It is left from an edit, or copied from where there was a transpose. It costs next to nothing, but it makes the
    reader look for the view that it is there for.

How to fix it
    Delete it. The fix is safe where the source tells that the tensor is contiguous: the call returned that very
    tensor. Where an `assert` about it has a part in that, it is made on request, since `python -O` leaves asserts
    out; where only a recording says so, it is shown: another input may lie otherwise.

When to ignore it
    Where it stands for a promise that a later edit must keep.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit, Safety
from stridewise.linter.facts.value import Value
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import before, contiguous, has_comment
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
WORDS = ("contiguous", "is_contiguous")

FIRES = (
    Fires(
        """
import torch

def program():
    return torch.zeros(2, 3).contiguous().view(-1)
""",
        fixed="""
import torch

def program():
    return torch.zeros(2, 3).view(-1)
""",
    ),
    Fires(
        """
import torch

def program(x=torch.zeros(2, 3).t()):
    x = x.contiguous()
    y = x.contiguous(memory_format=torch.contiguous_format)
    return y
""",
        fixed="""
import torch

def program(x=torch.zeros(2, 3).t()):
    x = x.contiguous()
    y = x
    return y
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.ones(2, 3)
    x = x.contiguous()
    return x
""",
        fixed="""
import torch

def program():
    x = torch.ones(2, 3)
    return x
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.ones(2, 3)
    y = x.contiguous()
    assert y.is_contiguous()
    return y
""",
        fixed="""
import torch

def program():
    x = torch.ones(2, 3)
    y = x
    assert y.is_contiguous()
    return y
""",
    ),
    Fires(
        """
import torch

def program():
    if (x := torch.ones(2, 3)) is not None:
        x = x.contiguous()
    return x
"""
    ),
)
QUIET = (
    """
import torch

def program(x=torch.zeros(2, 3)):
    return x.contiguous()
""",
    """
import torch

def program():
    return torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
""",
    """
import torch

def program():
    return torch.zeros(2, 3).t().contiguous()
""",
    """
import torch

def program(x=torch.zeros(2, 3), last=True):
    if last:
        x = x.contiguous()
    return x.contiguous()
""",
    """
import torch

def program(x=torch.zeros(2, 3)):
    x = x.contiguous()
    for _ in range(2):
        x = x.contiguous().t()
    return x
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `contiguous` whose tensor is contiguous already."""
    for call in module.calls("contiguous"):
        base = contiguous(module, call)
        if base is None or isinstance(module.parent(call), ast.Expr):  # a result that is thrown away is SW301's
            continue
        value = module.value(base)
        if not value.is_contiguous:
            continue
        name = f"`{module.text(base)}`"
        if value.seen:
            message = f"{name} was contiguous in every call that the recording holds: `.contiguous()` returned it."
        else:
            message = f"{name} is contiguous already: `.contiguous()` returns it as it is, and does nothing."
        yield Problem(
            call,
            message,
            advice="Delete the call." if not value.seen else "Delete the call if that holds of other inputs as well.",
            edits=_fix(module, base, call, _safety(module, call, value)),
            severity="note" if value.seen else None,
            origin=value.node if value.node is not None and value.node is not base else None,
        )


def _safety(module: Module, call: ast.Call, value: Value) -> Safety:
    if value.seen:
        return "display"
    function = module.scope(call)
    asserted = any(module.scope(each) is function and _asks(each.test) for each in module.nodes(ast.Assert))
    return "unsafe" if asserted else "safe"


def _asks(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "is_contiguous" for node in ast.walk(test))


def _fix(module: Module, base: ast.expr, call: ast.Call, safety: Safety) -> tuple[Edit, ...]:
    if has_comment(module, base, call):
        return ()
    text = before(module, call).rstrip()
    statement = module.parent(call)
    if isinstance(statement, ast.Assign) and [module.text(each) for each in statement.targets] == [module.text(base)]:
        return _deletion(module, statement, safety)
    return (Edit(module.source.name, module.source.span(call), text, safety),)


def _deletion(module: Module, statement: ast.Assign, safety: Safety) -> tuple[Edit, ...]:
    """Take out a statement that would say `x = x`, with its line; none if it shares that, or is all that a body has."""
    source = module.source
    start, end = source.span(statement)
    begin, _ = source.line_at(start)
    _, stop = source.line_at(end)
    above = module.parent(statement)
    bodies = [getattr(above, name, []) for name in ("body", "orelse", "finalbody")]
    is_alone = any(body == [statement] for body in bodies)
    if (
        is_alone
        or b"#" in source.content[start:end]
        or source.decode((begin, start)).strip()
        or source.decode((end, stop)).strip()
    ):
        return ()
    if stop < len(source.content):
        stop += len(source.newline_at(stop))
    return (Edit(source.name, (begin, stop), "", safety),)
