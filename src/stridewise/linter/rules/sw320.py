"""SW320 output-like-strided: a kernel reads a contiguous copy and writes into an output with the original's strides.

What it means
    `xc = x.contiguous()` is what the kernel reads, but `out = torch.empty_like(x)` is what it writes to. `empty_like`
    keeps the strides of a dense tensor: for a transposed or channels_last `x` the output is transposed or
    channels_last. The kernel fills it row by row, and the values come out permuted, without an error.

Why it happens
    `.contiguous()` was added after a report of wrong results; the output beside it kept its old line. With contiguous
    input both are right, and a slice hides it too, since `empty_like` closes gaps.

How to fix it
    Make the output from what the kernel reads: `torch.empty_like(xc)`; or say the format:
    `torch.empty_like(x, memory_format=torch.contiguous_format)`. The fix does the first where `xc` is bound before,
    else the second. It changes results, which is its purpose, so it is not made unasked.

When to ignore it
    Where the kernel uses the output's strides, or `x` is contiguous whenever the function is called.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress

from stridewise.findings import Edit
from stridewise.linter.module import Module
from stridewise.linter.names import last_name
from stridewise.linter.reading.chains import torch_at
from stridewise.linter.reading.pointers import Body, arguments, is_guarded_elsewhere, is_launch, is_wrapped
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits
from stridewise.source.file import Function

SEVERITY = "error"
WORDS = ("empty_like", "zeros_like", "ones_like", "full_like")

FIRES = (
    Fires(
        """
import ctypes
import torch

def copy(x):
    xc = x.contiguous()
    out = torch.empty_like(x)
    ctypes.memmove(out.data_ptr(), xc.data_ptr(), 4 * x.numel())
    return out

def program():
    x = torch.arange(6.0).reshape(2, 3).t()
    return copy(x), x
""",
        fixed="""
import ctypes
import torch

def copy(x):
    xc = x.contiguous()
    out = torch.empty_like(xc)
    ctypes.memmove(out.data_ptr(), xc.data_ptr(), 4 * x.numel())
    return out

def program():
    x = torch.arange(6.0).reshape(2, 3).t()
    return copy(x), x
""",
    ),
    Fires(
        """
import torch
import my_extension

def copy(x):
    out = torch.zeros_like(x)
    my_extension.copy(x.contiguous(), out)
    return out

def program():
    x = torch.arange(6.0).reshape(2, 3).t()
    return copy(x), x
""",
        fixed="""
import torch
import my_extension

def copy(x):
    out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    my_extension.copy(x.contiguous(), out)
    return out

def program():
    x = torch.arange(6.0).reshape(2, 3).t()
    return copy(x), x
""",
    ),
)
QUIET = (
    """
import ctypes
import torch

def copy(x):
    xc = x.contiguous()
    out = torch.empty_like(xc)
    same = torch.empty_like(x, memory_format=torch.contiguous_format)
    ctypes.memmove(out.data_ptr(), xc.data_ptr(), 4 * x.numel())
    ctypes.memmove(same.data_ptr(), xc.data_ptr(), 4 * x.numel())
    return out, same

def double(x):
    xc = x.contiguous()
    out = torch.empty_like(x)
    torch.add(xc, xc, out=out)
    out.copy_(xc)
    return out

def rebound(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    ctypes.memmove(out.data_ptr(), x.data_ptr(), 4 * x.numel())
    return out
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Outputs made like a tensor whose contiguous copy a kernel reads."""
    bodies: dict[Function, Body] = {}
    guarded: dict[Function, bool] = {}
    for call in module.calls(*WORDS):
        name = module.name(call.func) or ""
        if not name.startswith("torch.") or not call.args or not isinstance(call.args[0], ast.Name):
            continue
        function = module.function(call)
        if function is None or any(keyword.arg == "memory_format" for keyword in call.keywords):
            continue
        span = module.source.span(function)
        if b"contiguous" not in module.source.content[slice(*span)] or module.value(call.args[0]).is_contiguous:
            continue
        body = bodies.get(function) or bodies.setdefault(function, Body(function))
        found = _kernel(module, body, call, call.args[0].id)
        if found is None:
            continue
        if function not in guarded:
            guarded[function] = is_wrapped(function) or is_guarded_elsewhere(module, function)
        if not guarded[function]:
            yield _problem(module, call, call.args[0], *found)


def _problem(module: Module, call: ast.Call, like: ast.Name, kernel: ast.Call, copy: ast.Call, held: str) -> Problem:
    fix: tuple[Edit, ...] = ()
    given = held if held and copy.lineno < call.lineno else f"{like.id}, memory_format=torch.contiguous_format"
    with suppress(ValueError):
        fix = (edits.replace(module.source, like, held),) if given == held else _with_format(module, call)
    return Problem(
        call,
        f"`{module.text(call)}` has the strides of `{like.id}`, but `{module.text(kernel.func)}` reads "
        f"`{held if held and held != like.id else module.text(copy)}` and writes as if the output were contiguous too: "
        "for a transposed or channels_last input the values come out permuted.",
        advice=f"Write `{module.text(call.func)}({given})`.",
        edits=fix,
    )


def _with_format(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """The call with a memory format, behind the last argument: a comma may follow that. None if torch has no name."""
    source = module.source
    last = max(arguments(call), key=source.span)
    torch = torch_at(module, call)
    if torch is None:
        return ()
    (start, end), (_, behind) = source.span(call), source.span(last)
    text = f"{source.decode((start, behind))}, memory_format={torch}.contiguous_format{source.decode((behind, end))}"
    return (Edit(source.name, (start, end), text, "unsafe"),)


def _kernel(module: Module, body: Body, call: ast.Call, like: str) -> tuple[ast.Call, ast.Call, str] | None:
    """The kernel that gets the output and a contiguous copy of what it was made like, the copy, and its name."""
    output = _bound_name(body, call)
    copies = [(copy, _bound_name(body, copy)) for copy in body.calls() if _is_copy_of(copy, like)]
    if not copies or any(_is_strides(body.parent(use)) for use in body.names(output or "")):
        return None
    stores = [use.lineno for use in body.names(like) if not isinstance(use.ctx, ast.Load)]
    for kernel in body.calls():
        handed = [_addressed(each) for each in arguments(kernel)]
        if not _takes(handed, call, output) or not _is_kernel(module, kernel):
            continue
        for copy, held in copies:
            first, last = sorted((copy.lineno, call.lineno))
            # `x = x.contiguous()` behind `empty_like(x)` is such a copy too; before it, it is what that is like.
            others = [line for line in stores if line != copy.lineno] if held == like else stores
            is_after = held != like or call.lineno < copy.lineno < kernel.lineno
            if is_after and _takes(handed, copy, held) and not any(first <= line <= last for line in others):
                return kernel, copy, held or ""
    return None


def _is_copy_of(call: ast.Call, name: str) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr="contiguous"), args=[], keywords=[]):
            return base == name
    return False


def _bound_name(body: Body, node: ast.expr) -> str | None:
    """The name that an expression is bound to, if it is bound to one."""
    match body.parent(node):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def _addressed(argument: ast.expr) -> ast.expr:
    """The tensor whose address an argument is, or the argument."""
    match argument:
        case ast.Call(func=ast.Attribute(value=tensor, attr="data_ptr")):
            return tensor
        case ast.Call(func=ast.Attribute(), args=[inner, *_]) | ast.Call(func=ast.Name(), args=[inner, *_]):
            return _addressed(inner) if isinstance(inner, ast.Call) else argument  # `c_void_p(x.data_ptr())`
    return argument


def _takes(handed: list[ast.expr], node: ast.expr, name: str | None) -> bool:
    return any(each is node or (name is not None and isinstance(each, ast.Name) and each.id == name) for each in handed)


def _is_strides(use: ast.AST | None) -> bool:
    return isinstance(use, ast.Attribute) and use.attr in ("stride", "is_contiguous", "contiguous")


def _is_kernel(module: Module, call: ast.Call) -> bool:
    """Whether a call is one of foreign code: it gets an address, launches a Triton kernel, or is an extension's."""
    if is_launch(module, call) or any(_addressed(each) is not each for each in arguments(call)):
        return True
    name = module.name(call.func)
    if name is None or name.startswith(("torch.", "numpy.")):
        return name is not None and name.startswith("torch.ops.")
    return isinstance(call.func, ast.Attribute) and not last_name(call.func).endswith("_")
