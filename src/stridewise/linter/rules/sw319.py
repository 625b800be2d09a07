"""SW319 gradient-pointer: a backward hands the gradient to a kernel and does not look at its strides.

What it means
    The `backward` of a `torch.autograd.Function` passes the address of an incoming gradient to a kernel, launches a
    Triton kernel on it, or hands it to the same extension that `forward` gives `.contiguous()` tensors to. It never
    asks how the gradient lies, and the kernel takes it for contiguous.

Why it happens
    A gradient has the strides that the operator behind gave it, not those of the output. That of `sum()` is
    expanded: all strides are 0 and one element is in memory, so the kernel reads beyond its end. That of `cat` is a
    slice, that of a transposed output is transposed. `gradcheck` may pass all the same: its gradients
    are contiguous.

How to fix it
    `grad_output = grad_output.contiguous()` first thing in `backward`; it costs nothing where the gradient is
    contiguous. The fix copies a strided gradient once, and is not made unasked: a gradient may be None where
    `set_materialize_grads(False)` was called.

When to ignore it
    Where the extension itself checks, copies or uses the strides.
"""

import ast
from collections.abc import Iterable, Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module
from stridewise.linter.reading.pointers import (
    Body,
    arguments,
    blind_kernels,
    is_autograd_function,
    is_wrapped,
    items,
    listed,
    looks_at_strides,
    named,
    parameters,
)
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits

SEVERITY = "error"
WORDS = ("backward", "data_ptr", "grid", "triton", "grad", "grad_output")

FIRES = (
    Fires(
        """
import ctypes
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        grad = torch.empty(grad_output.shape)
        ctypes.memmove(grad.data_ptr(), grad_output.data_ptr(), 4 * grad_output.numel())
        return grad * 2

def program():
    x = torch.ones(3, 4, requires_grad=True)
    weight = torch.arange(12.0).reshape(4, 3)
    (Double.apply(x).t() * weight).sum().backward()
    return x.grad, 2 * weight.t()
""",
        fixed="""
import ctypes
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        grad = torch.empty(grad_output.shape)
        grad_output = grad_output.contiguous()
        ctypes.memmove(grad.data_ptr(), grad_output.data_ptr(), 4 * grad_output.numel())
        return grad * 2

def program():
    x = torch.ones(3, 4, requires_grad=True)
    weight = torch.arange(12.0).reshape(4, 3)
    (Double.apply(x).t() * weight).sum().backward()
    return x.grad, 2 * weight.t()
""",
    ),
    Fires(
        """
import torch
import my_extension

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return my_extension.scale(x.contiguous())

    @staticmethod
    def backward(ctx, grad_output):
        return my_extension.scale(grad_output)

def program():
    x = torch.ones(3, 4, requires_grad=True)
    weight = torch.arange(12.0).reshape(4, 3)
    (Scale.apply(x).t() * weight).sum().backward()
    return x.grad, 2 * weight.t()
""",
        fixed="""
import torch
import my_extension

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return my_extension.scale(x.contiguous())

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        return my_extension.scale(grad_output)

def program():
    x = torch.ones(3, 4, requires_grad=True)
    weight = torch.arange(12.0).reshape(4, 3)
    (Scale.apply(x).t() * weight).sum().backward()
    return x.grad, 2 * weight.t()
""",
    ),
)
QUIET = (
    """
import ctypes
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        grad = torch.empty(grad_output.shape)
        ctypes.memmove(grad.data_ptr(), grad_output.data_ptr(), 4 * grad_output.numel())
        return grad * 2

class Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.div(x.contiguous(), 2)

    @staticmethod
    def backward(ctx, grad_output):
        return torch.div(grad_output, 2)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Gradients that a `backward` hands to kernels as they come."""
    for function in module.nodes(ast.FunctionDef):
        owner = module.class_of(function)
        if function.name != "backward" or owner is None or not is_autograd_function(module, owner):
            continue
        if is_wrapped(function):
            continue
        body = Body(function)
        single = items(body)
        names = [*parameters(function)[1:], *single]
        strict = _strict_extensions(module, owner)
        kernels = blind_kernels(module, body, names)
        for call in body.calls():
            if _extension(module, call) in strict:
                handed = [named(each) for each in arguments(call) if named(each) in names]
                kernels.setdefault(call, []).extend(handed)
        for kernel, taken in kernels.items():
            blind = [name for name in taken if not _looks(module, body, name, set(kernels), single.get(name, ()))]
            if blind:
                yield _problem(module, kernel, blind)


def _problem(module: Module, kernel: ast.Call, names: list[str]) -> Problem:
    which = listed(names)
    bound = [(name if name.isidentifier() else "grad", name) for name in names]
    lines = "\n".join(f"{target} = {name}.contiguous()" for target, name in bound)
    is_fixable = all(name.isidentifier() for name in names)
    return Problem(
        kernel,
        f"`{module.text(kernel.func)}` takes {which} for contiguous, and nothing makes sure of it. Gradients come with "
        "any strides: that of `sum()` is one element, expanded.",
        advice=f"`{bound[0][0]} = {names[0]}.contiguous()` before it{'' if is_fixable else ', and hand that over'}.",
        edits=_before(module, kernel, lines) if is_fixable else (),
    )


def _before(module: Module, kernel: ast.Call, lines: str) -> tuple[Edit, ...]:
    statement = next((each for each in module.above(kernel) if isinstance(each, ast.stmt)), None)
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.Return)):
        return ()
    try:
        return (edits.insert_before(module.source, statement, lines),)
    except ValueError:
        return ()


def _looks(module: Module, body: Body, name: str, kernels: set[ast.Call], bound: Iterable[ast.expr]) -> bool:
    """Whether a backward looks at a gradient's strides; the kernels that get it, and where it is bound, left out."""
    handed = {each for kernel in kernels for each in arguments(kernel)}
    return looks_at_strides(module, body, name, but=handed.union(bound))


def _strict_extensions(module: Module, owner: ast.ClassDef) -> set[str]:
    """Modules to whose functions `forward` hands tensors that it made contiguous."""
    found: set[str] = set()
    for forward in owner.body:
        if not isinstance(forward, ast.FunctionDef) or forward.name != "forward":
            continue
        made = {
            target.id
            for node in ast.walk(forward)
            if isinstance(node, ast.Assign) and _is_contiguous(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(forward):
            if not isinstance(call, ast.Call):
                continue
            handed = arguments(call)
            if any(_is_contiguous(each) or (isinstance(each, ast.Name) and each.id in made) for each in handed):
                found.add(_extension(module, call))
    return found - {""}


def _is_contiguous(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "contiguous"


def _extension(module: Module, call: ast.Call) -> str:
    """The module or namespace that a function belongs to, torch's own left out: `_C`, `torch.ops.mine`."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return ""
    full = module.name(function)
    if full is not None:
        owner = full.rpartition(".")[0]
        return "" if full.startswith(("torch.", "numpy.")) and not full.startswith("torch.ops.") else owner
    owner_name = function.value.id if isinstance(function.value, ast.Name) else ""
    return owner_name if owner_name in _module_level(module) else ""


def _module_level(module: Module) -> set[str]:
    """Names that the module binds itself, such as `kernel = None` or `kernel = load(…)`."""
    assigns = [statement for statement in module.source.tree.body if isinstance(statement, ast.Assign)]
    return {target.id for statement in assigns for target in statement.targets if isinstance(target, ast.Name)}
