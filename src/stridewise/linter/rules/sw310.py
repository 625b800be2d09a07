"""SW310 guarded-contiguous: a check whether a tensor is contiguous, only to call what makes that check itself.

What it means
    `if not x.is_contiguous(): x = x.contiguous()` does what `x = x.contiguous()` does alone: of a contiguous tensor
    `contiguous` returns that tensor itself, not a copy. `x if x.is_contiguous() else x.contiguous()` is the same.

Why it happens
    The name sounds as if it always copied. It does not, for any memory format that it is asked for. The guard saves
    nothing, and it is a branch of Python on a layout: `torch.export` and `torch.jit.trace` follow the one way that
    the example took, and leave the other out of the program.

How to fix it
    Call `contiguous` without the check. The fix is safe for a plain name: values, memory, strides, gradients and
    errors stay as they are. An attribute or an item would be assigned where it was only read before, and so would a
    name of a class's body: there it is made only on request. A comment inside the `if` is not thrown away: then there
    is no fix.

When to ignore it
    Where the branch is there to be stopped at, or will hold more.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit, Safety
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import receiver
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
WORDS = ("is_contiguous",)

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if not x.is_contiguous():
        x = x.contiguous()
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

def program():
    tensors = torch.zeros(2, 3), torch.zeros(2, 3).t()
    return [x if x.is_contiguous() else x.contiguous() for x in tensors]
""",
        fixed="""
import torch

def program():
    tensors = torch.zeros(2, 3), torch.zeros(2, 3).t()
    return [x.contiguous() for x in tensors]
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    if x.is_contiguous(memory_format=torch.channels_last):
        y = x
    else:
        y = x.contiguous(memory_format=torch.channels_last)
    return y
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    y = x.contiguous(memory_format=torch.channels_last)
    return y
""",
    ),
    Fires(
        """
import torch

class Holder:
    def pack(self):
        if not self.weight.is_contiguous():
            self.weight = self.weight.contiguous()
        return self.weight

def program():
    holder = Holder()
    holder.weight = torch.zeros(2, 3).t()
    return holder.pack()
""",
        fixed="""
import torch

class Holder:
    def pack(self):
        self.weight = self.weight.contiguous()
        return self.weight

def program():
    holder = Holder()
    holder.weight = torch.zeros(2, 3).t()
    return holder.pack()
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if not x.is_contiguous():
        # The kernel reads it row by row.
        x = x.contiguous()
    return x
"""
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if not x.is_contiguous():
        print("a copy is made")
        x = x.contiguous()
    return x
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if not x.is_contiguous():
        x = x.contiguous()
    else:
        x = x.clone()
    return x
""",
    """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    if not x.is_contiguous():
        x = x.contiguous(memory_format=torch.channels_last)
    return x
""",
    """
import torch

def program():
    x, y = torch.zeros(2, 3).t(), torch.zeros(2, 3).t()
    if not x.is_contiguous():
        y = y.contiguous()
    return x, y
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    y = x if not x.is_contiguous() else x.contiguous()
    return y
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Branches on `is_contiguous` whose only effect is to call `contiguous` of the same tensor."""
    for call in module.calls("is_contiguous"):
        tensor = receiver(module, call, "is_contiguous")
        arguments = (*call.args, *(keyword.value for keyword in call.keywords))
        if tensor is None or not all(map(_can_be_read_again, (tensor, *arguments))):
            continue
        test: ast.expr = call
        branch = module.parent(call)
        is_negated = _is_negation(branch)
        if is_negated and isinstance(branch, ast.expr):
            test, branch = branch, module.parent(branch)
        if not isinstance(branch, (ast.If, ast.IfExp)) or branch.test is not test:
            continue
        kept = _kept(module, call, tensor, branch, is_negated)
        if kept is None:
            continue
        made, name = f"{module.text(tensor)}.contiguous", module.text(tensor)
        yield Problem(
            branch if isinstance(branch, ast.IfExp) else call,
            f"`{module.text(call)}` is asked before `{made}` is called, which asks it itself: of a tensor that is "
            "contiguous it returns that tensor, without a copy.",
            advice=f"Write `{module.text(kept)}`, without the check.",
            edits=_fix(module, branch, kept, _safety(module, branch, tensor)),
            evidence=(f"the branch on the layout of `{name}` is baked in when the function is exported or traced",),
        )


def _is_negation(node: ast.AST | None) -> bool:
    """Whether a node is `not …`, `… is False` or `… == False`."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(value))]):
            return not value
    return False


def _safety(module: Module, branch: ast.AST, tensor: ast.expr) -> Safety:
    """Assigning a name again is safe, but not in a class, where that makes an attribute of it."""
    is_safe = isinstance(tensor, ast.Name) and not isinstance(module.scope(branch), ast.ClassDef)
    return "safe" if is_safe else "unsafe"


def _kept(
    module: Module, check: ast.Call, tensor: ast.expr, branch: ast.If | ast.IfExp, is_negated: bool
) -> ast.expr | ast.stmt | None:
    """The part of a branch that does all of it; None if it does more."""
    if isinstance(branch, ast.IfExp):
        copied, as_it_is = (branch.body, branch.orelse) if is_negated else (branch.orelse, branch.body)
        alike = _is_contiguous_of(module, check, copied) and _same(module, as_it_is, tensor)
        return copied if alike else None
    on, off = (branch.body, branch.orelse) if is_negated else (branch.orelse, branch.body)
    made = _assignment(on)
    if made is None or made.value is None or not _is_contiguous_of(module, check, made.value):
        return None
    if off:
        other = _assignment(off)
        alike = other is not None and _same(module, _target(other), _target(made))
        return (
            made
            if alike and other is not None and other.value is not None and _same(module, other.value, tensor)
            else None
        )
    return made if _same(module, _target(made), tensor) else None


def _fix(module: Module, branch: ast.If | ast.IfExp, kept: ast.expr | ast.stmt, safety: Safety) -> tuple[Edit, ...]:
    (start, end), (begin, stop) = module.source.span(branch), module.source.span(kept)
    content = module.source.content
    if b"#" in content[start:begin] + content[stop:end] or content.startswith(b"elif", start):
        return ()
    return (Edit(module.source.name, (start, end), module.source.source(kept), safety),)


def _assignment(body: list[ast.stmt]) -> ast.Assign | ast.AnnAssign | None:
    """The one statement of a body, if it is the assignment of one target."""
    match body:
        case [ast.Assign(targets=[_]) as only]:
            return only
        case [ast.AnnAssign(value=ast.expr()) as only]:
            return only
    return None


def _target(statement: ast.Assign | ast.AnnAssign) -> ast.expr:
    return statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]


def _is_contiguous_of(module: Module, check: ast.Call, node: ast.expr) -> bool:
    """Whether a node calls `contiguous` of what was checked, with the arguments of the check."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "contiguous":
        return False
    return module.text(node).removeprefix(module.text(node.func)) == module.text(check).removeprefix(
        module.text(check.func)
    ) and _same(module, node.func.value, check.func.value)  # type: ignore[attr-defined]


def _same(module: Module, one: ast.expr, other: ast.expr) -> bool:
    return module.text(one) == module.text(other)


def _can_be_read_again(node: ast.expr) -> bool:
    """Whether reading an expression once more, or once less, is sure to change nothing."""
    return not any(isinstance(part, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for part in ast.walk(node))
