"""SW316 branch-on-layout: code that is traced or exported takes one way or the other by a tensor's layout.

What it means
    `if x.is_contiguous():` or a condition on `x.stride(0)` is decided once, by the example input, when the function is
    traced or exported. The artefact holds only the way that was taken, and no check. An input that lies otherwise goes
    that way too, and gives wrong values without an error.

Why it happens
    `torch.jit.trace`, `torch.export.export` and `torch.onnx.export` record operations on tensors. What
    `is_contiguous()` and `stride()` give are numbers of Python, and are gone. `torch.compile` guards on strides and
    compiles anew, so it is right, and `torch.jit.script` keeps the branch.

How to fix it
    Write one way that is right for every layout. Where only one layout is meant to come in, convert the input before
    the artefact is called: a `.contiguous()` that does nothing for the example may be dropped from it.

When to ignore it
    When whatever calls the artefact gives it tensors laid out like the example.
"""

import ast
from collections.abc import Iterator

from stridewise.linter.module import Module
from stridewise.linter.reading.traced import EXPORTERS, traced_functions
from stridewise.linter.rule import Fires, Problem
from stridewise.source.file import Function

SEVERITY = "error"
_QUESTIONS = ("is_contiguous", "stride")
WORDS = (*_QUESTIONS, *{name.rpartition(".")[2] for name in EXPORTERS})

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
        if function is None or exporter is None or not _decides(module, function, call):
            continue
        if module.statement(call) in told:
            continue
        told.add(module.statement(call))
        yield Problem(
            call,
            f"`{module.text(call)}` decides a branch, and `{module.text(exporter.func)}` records this function: what "
            "the example input gave is baked in, without a check. An input that lies otherwise takes the same way, and "
            "may give wrong values.",
            advice="Write one way that is right for every layout, or convert the input before the artefact is called.",
            origin=exporter,
        )


def _is_own(node: ast.expr) -> bool:
    """Whether a tensor is the module's own, such as `self.weight`: its layout is the artefact's too."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def _decides(module: Module, function: Function, call: ast.Call) -> bool:
    """Whether a condition in a function depends on a call, but for one that guards `x = x.contiguous()`."""
    below: ast.AST = call
    for above in module.above(call):
        if isinstance(above, (ast.If, ast.While, ast.IfExp)) and below is above.test:
            return not _guards_contiguous(above)
        if isinstance(above, ast.Assign):
            walked = (each for target in above.targets for each in ast.walk(target))
            names = {each.id for each in walked if isinstance(each, ast.Name)}
            return any(
                isinstance(node, (ast.If, ast.While, ast.IfExp)) and _reads(node.test, names)
                for node in ast.walk(function)
            )
        if isinstance(above, ast.stmt):
            return False
        below = above
    return False


def _reads(test: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(test))


def _guards_contiguous(node: ast.If | ast.While | ast.IfExp) -> bool:
    """Whether all that a branch does is to make a tensor contiguous."""
    if not isinstance(node, ast.If) or len(node.body) != 1 or node.orelse:
        return False
    only = node.body[0]
    return (
        isinstance(only, ast.Assign)
        and isinstance(only.value, ast.Call)
        and isinstance(only.value.func, ast.Attribute)
        and only.value.func.attr == "contiguous"
    )
