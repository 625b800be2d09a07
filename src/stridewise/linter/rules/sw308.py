"""SW308 pointer-without-strides: a kernel gets an argument's address, and nobody looks at its strides.

What it means
    A function hands `x.data_ptr()` of an argument to a kernel (through ctypes, an extension, a foreign runtime), or
    launches a Triton kernel on the argument, and neither passes its strides nor asks `x.is_contiguous()`. The kernel
    computes places from sizes alone. For a transposed, sliced or expanded argument it reads and writes other elements
    than those meant, or beyond the end, without an error.

Why it happens
    An address says nothing of how the elements lie. Kernels are written and tried on tensors straight from `randn`;
    the first `split()`, `transpose` or `expand` before the call comes later, in somebody else's code.

How to fix it
    Check at the entry: `if not x.is_contiguous(): raise ValueError(…)`. For what is only read, `x = x.contiguous()`
    does as well; for what the kernel writes it does not, since the result would land in a copy. Or pass `x.stride()`
    and use it in the kernel.

When to ignore it
    Where a function in another file makes sure that it gets contiguous tensors. A function whose callers in the same
    file do so, or that has a decorator which may, is not reported; nor is one that looks at the strides of any of its
    arguments, since what it asks of one it often asks of all in ways that can't be read here.
"""

from collections.abc import Iterator

from stridewise.linter.module import Module
from stridewise.linter.reading.pointers import (
    Body,
    blind_kernels,
    is_autograd_function,
    is_guarded_elsewhere,
    is_wrapped,
    launches,
    listed,
    looks_at_strides,
    mentions_strides,
    parameters,
)
from stridewise.linter.rule import Fires, Problem
from stridewise.source.file import Function

SEVERITY = "warning"
WORDS = ("data_ptr", "grid", "triton", "num_warps", "BLOCK", "BLOCK_SIZE")

FIRES = (
    Fires(
        """
import ctypes
import torch

def double(x):
    out = torch.empty(x.shape)
    values = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
    out.view(-1).copy_(torch.tensor([2 * value for value in values]))
    return out

def program():
    return double(torch.arange(6.0).reshape(2, 3).t())
"""
    ),
    Fires(
        """
import torch
import triton

@triton.jit
def add_kernel(x, y, out, n, BLOCK):
    pass

def add(x: torch.Tensor, y: torch.Tensor, block: int):
    out = torch.empty(x.shape, device=x.device)
    grid = (triton.cdiv(x.numel(), block),)
    add_kernel[grid](x, y, out, x.numel(), BLOCK=block)
    return out

def program():
    x = torch.arange(6.0).reshape(2, 3)
    return add(x.t(), x.t(), 4)
"""
    ),
)
QUIET = (
    """
import ctypes
import torch

def read(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    return list((ctypes.c_float * x.numel()).from_address(x.data_ptr()))

def read_copy(x):
    x = x.contiguous()
    return list((ctypes.c_float * x.numel()).from_address(x.data_ptr()))

def checked(function):
    return lambda x: function(x.contiguous())

@checked
def read_checked(x):
    return list((ctypes.c_float * x.numel()).from_address(x.data_ptr()))

def is_same(x, y, seen):
    seen.add(x.data_ptr())
    return x.data_ptr() == y.data_ptr()

def program():
    x = torch.arange(6.0).reshape(2, 3).t()
    return read_copy(x), read_checked(x), is_same(x, x, set())
""",
    """
import torch
import triton

@triton.jit
def copy_kernel(x, stride, out, n):
    pass

def copy(x: torch.Tensor):
    out = torch.empty(x.shape)
    copy_kernel[(1,)](x, x.stride(0), out, x.numel())
    return out
""",
    """
import torch

HANDLERS = {}

def handle(x: torch.Tensor, grid):
    return HANDLERS[grid](x)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Kernels that get addresses of arguments in functions which never look at their strides."""
    functions: dict[Function, None] = {}
    for call in (*module.calls("data_ptr"), *launches(module)):
        function = module.function(call)
        if function is not None:
            functions[function] = None
    for function in functions:
        owner = module.class_of(function)
        if (
            is_wrapped(function)
            or mentions_strides(function)
            or (function.name == "backward" and is_autograd_function(module, owner))
        ):
            continue
        body = Body(function)
        names = [name for name in parameters(function) if not looks_at_strides(module, body, name)]
        kernels = blind_kernels(module, body, names)
        if not kernels or is_guarded_elsewhere(module, function):
            continue
        told: set[str] = set()
        for kernel, handed in kernels.items():
            taken = [name for name in handed if name not in told]
            told.update(taken)
            if not taken:
                continue
            which = listed(taken)
            one = len(taken) == 1
            yield Problem(
                kernel,
                f"A kernel gets the address of {which} and no strides, and `{function.name}` never looks at "
                f"{'its' if one else 'their'} layout: where it is transposed, sliced or expanded, "
                f"`{module.text(kernel.func)}` may work on other elements than those meant.",
                advice=f"Raise unless {' and '.join(f'`{name}.is_contiguous()`' for name in taken)}, or pass "
                f"{'its' if one else 'their'} strides; `{taken[0]} = {taken[0]}.contiguous()` before it does for what "
                "the kernel only reads.",
            )
