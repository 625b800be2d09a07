"""SW316 branch-on-layout: code that is traced or exported takes one way or the other by a tensor's layout.

What it means
    `if x.is_contiguous():` or a condition on `x.stride(0)` is decided once, by the example input, when the function is
    traced or exported. The artefact holds only the way that was taken, and no check. An input that lies otherwise goes
    that way too, and gives wrong values without an error. A check that raises, as `if not x.is_contiguous(): raise …`
    does, is made for the example only, and missing in the artefact: that is a warning.

Why it happens
    `torch.jit.trace`, `torch.export.export` and `torch.onnx.export` record operations on tensors. What
    `is_contiguous()` and `stride()` give are numbers of Python, and are gone. `torch.compile` guards on strides and
    compiles anew, so it is right, and `torch.jit.script` keeps the branch.

How to fix it
    Write one way that is right for every layout. Where only one layout is meant to come in, check or convert the input
    before the artefact is called: a `.contiguous()` that does nothing for the example may be dropped from it.

When to ignore it
    When whatever calls the artefact gives it tensors laid out like the example.
"""

import ast
from collections.abc import Iterator
from typing import Literal

from stridewise.linter.module import Module
from stridewise.linter.names import last_name
from stridewise.linter.reading.traced import EXPORTERS, traced_functions
from stridewise.linter.rule import Fires, Problem
from stridewise.source.file import Function

SEVERITY = "error"
_QUESTIONS = ("is_contiguous", "stride")
WORDS = (*_QUESTIONS, *{name.rpartition(".")[2] for name in EXPORTERS})
_Decided = Literal["branch", "check"]
"""Which of several ways is taken, or whether the only one is."""
_Conditional = ast.If | ast.While | ast.IfExp | ast.Assert
_CONDITIONAL = (ast.If, ast.While, ast.IfExp, ast.Assert)
_TELLING = ("warn", "warning", "warn_once", "warning_once", "info", "debug", "print")

FIRES = (
    Fires(
        """
import torch

class Scores(torch.nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            return x.as_strided((6,), (1,)) @ torch.arange(6.0)
        return x.flatten() @ torch.arange(6.0)

def program():
    model = Scores().eval()
    exported = torch.jit.trace(model, torch.arange(6.0).view(2, 3))
    return model, exported, torch.arange(6.0).view(3, 2).t()
"""
    ),
    Fires(
        """
import torch
from torch.export import export

def rows(x):
    wide = x.stride(0) > x.stride(1)
    return x.sum(1) if wide else x.sum(0)

class Inner(torch.nn.Module):
    def forward(self, x):
        return rows(x)

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * 2

def program():
    model = Outer()
    exported = export(model, (torch.arange(9.0).view(3, 3),)).module()
    return model, exported, torch.arange(9.0).view(3, 3).t()
""",
    ),
    Fires(
        """
import torch

class Dense(torch.nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            raise ValueError("strided")
        return x.as_strided((6,), (1,)) * 2

def program():
    model = Dense().eval()
    exported = torch.jit.trace(model, torch.arange(6.0).view(2, 3))
    return model, exported, torch.arange(6.0).view(3, 2).t()
"""
    ),
)
QUIET = (
    """
import torch

class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 2).t())

    def forward(self, x):
        weight = self.weight if self.weight.is_contiguous() else self.weight.contiguous()
        return x * weight

class Eager(torch.nn.Module):
    def forward(self, x):
        return x.flatten() if x.is_contiguous() else -x.flatten()

def program():
    x = torch.arange(6.0).view(2, 3)
    return torch.jit.trace(Scores(), x)(x), torch.compile(Eager(), backend="eager")(x.t())
""",
    """
import torch

class Kernel(torch.nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            x = x.contiguous()
        return x.flatten()

def program():
    x = torch.arange(6.0).view(2, 3)
    return torch.jit.trace(Kernel(), x)(x.t())
""",
    """
import warnings

import torch

class Told(torch.nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            warnings.warn("a copy is made")
        return x.flatten()

def program():
    return torch.jit.trace(Told(), torch.arange(6.0).view(2, 3))(torch.arange(6.0).view(3, 2).t())
""",
    """
import torch

class Scores(torch.nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            return x.flatten()
        return x.t().flatten()

def program():
    return torch.jit.script(Scores())(torch.arange(6.0).view(2, 3).t())
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Questions about layout that decide a branch in a function which the file traces or exports."""
    asked = [
        call
        for call in module.calls(*_QUESTIONS)
        if isinstance(call.func, ast.Attribute) and not _is_own(call.func.value) and module.function(call) is not None
    ]
    traced = traced_functions(module) if asked else {}
    told: set[ast.AST] = set()
    for call in asked:
        function = module.function(call)
        exporter = traced.get(function) if function is not None else None
        decided = _decided(module, function, call) if function is not None and exporter is not None else None
        if exporter is None or decided is None or module.statement(call) in told:
            continue
        told.add(module.statement(call))
        yield _problem(module, call, exporter, decided)


def _problem(module: Module, call: ast.Call, exporter: ast.Call, decided: _Decided) -> Problem:
    asked, recorder = module.text(call), module.text(exporter.func)
    if decided == "check":
        return Problem(
            call,
            f"`{asked}` is checked once, for the example input, when `{recorder}` records this function: the artefact "
            "has no such check, and takes an input that lies otherwise.",
            advice="Check the input, or convert it, before the artefact is called.",
            severity="warning",
            origin=exporter,
        )
    return Problem(
        call,
        f"`{asked}` decides a branch, and `{recorder}` records this function: what the example input gave is baked in, "
        "without a check. An input that lies otherwise takes the same way, and may give wrong values.",
        advice="Write one way that is right for every layout, or convert the input before the artefact is called.",
        origin=exporter,
    )


def _is_own(node: ast.expr) -> bool:
    """Whether a tensor is the module's own, such as `self.weight`: its layout is the artefact's too."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def _decided(module: Module, function: Function, call: ast.Call) -> _Decided | None:
    """What a condition in a function decides by a call, if there is one."""
    below: ast.AST = call
    for above in module.above(call):
        if isinstance(above, _CONDITIONAL) and below is above.test:
            return _kind(module, above)
        if isinstance(above, ast.Assign):
            walked = (each for target in above.targets for each in ast.walk(target))
            names = {each.id for each in walked if isinstance(each, ast.Name)}
            kinds = {
                _kind(module, node)
                for node in ast.walk(function)
                if isinstance(node, _CONDITIONAL) and _reads(node.test, names)
            }
            return "branch" if "branch" in kinds else "check" if "check" in kinds else None
        if isinstance(above, ast.stmt):
            return None
        below = above
    return None


def _kind(module: Module, node: _Conditional) -> _Decided | None:
    """What a condition decides: None where all ways give the same."""
    if isinstance(node, ast.Assert):
        return "check"
    if not isinstance(node, ast.If):
        return "branch"
    if _guards_contiguous(node) or (not node.orelse and all(map(_is_told, node.body))):
        return None
    behind = _behind(module, node) if isinstance(node.body[-1], ast.Return) else None
    ways = (node.body[-1], node.orelse[-1] if node.orelse else behind)
    return "check" if any(isinstance(way, ast.Raise) for way in ways) else "branch"


def _behind(module: Module, node: ast.If) -> ast.stmt | None:
    """The statement that follows on one in its block."""
    above = module.parent(node)
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(above, block, [])
        if node in statements[:-1]:
            return statements[statements.index(node) + 1]  # type: ignore[no-any-return]
    return None


def _is_told(statement: ast.stmt) -> bool:
    """Whether all that a statement does is to print something, or to warn of it."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return last_name(statement.value.func) in _TELLING


def _reads(test: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(test))


def _guards_contiguous(node: ast.If) -> bool:
    """Whether all that a branch does is to make a tensor contiguous."""
    if len(node.body) != 1 or node.orelse:
        return False
    only = node.body[0]
    return (
        isinstance(only, ast.Assign)
        and isinstance(only.value, ast.Call)
        and isinstance(only.value.func, ast.Attribute)
        and only.value.func.attr == "contiguous"
    )
