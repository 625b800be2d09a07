import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from ..texts import findings, rule_of, run

CODE = "SW308"


class Kernel:
    """A stand-in for a compiled Triton kernel: it sees addresses and sizes, as that does."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: Any) -> Any:
        return self.run

    def run(self, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, size: int, BLOCK: int) -> None:
        first, second = (torch.as_strided(each, (size,), (1,)) for each in (x, y))
        out.view(-1).copy_(first + second)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("triton")
    module.jit = Kernel  # type: ignore[attr-defined]
    module.cdiv = lambda n, block: -(-n // block)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)


def test_a_transposed_argument_gives_wrong_values() -> None:
    (example, _) = rule_of(CODE).fires
    x = torch.arange(6.0).reshape(2, 3)
    double = run(example.source)["double"]
    assert torch.equal(double(x), 2 * x)
    assert not torch.equal(double(x.t()), 2 * x.t())
    assert not torch.equal(double(torch.arange(6.0).expand(2, 6)[:, 3:]), 2 * torch.arange(6.0).expand(2, 6)[:, 3:])


def test_a_check_at_the_entry_refuses_it() -> None:
    names = run(rule_of(CODE).quiet[0])
    x = torch.arange(6.0).reshape(2, 3).t()
    with pytest.raises(ValueError, match="contiguous"):
        names["read"](x)
    assert names["read_copy"](x) == names["read_checked"](x) == x.reshape(-1).tolist()


@pytest.mark.usefixtures("triton")
def test_a_launch_on_a_transposed_argument_gives_wrong_values() -> None:
    (_, example) = rule_of(CODE).fires
    add = run(example.source)["add"]
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(add(x, x, 4), 2 * x)
    assert not torch.equal(add(x.t(), x.t(), 4), 2 * x.t())


def test_one_finding_for_a_launch_names_all_arguments() -> None:
    (_, example) = rule_of(CODE).fires
    (found,) = findings(example.source, CODE)
    assert "`x` and `y`" in found.message


START = """
import ctypes
import torch
import triton
from kernels import copy_kernel, lib

"""


@pytest.mark.parametrize(
    "body",
    [
        "lib.copy(x.data_ptr(), x.numel())",
        "lib.copy(ctypes.c_void_p(x.data_ptr()), x.numel())",
        "address = x.data_ptr()\n    lib.copy(address, x.numel())",
        "lib.copy(*[ctypes.c_void_p(x.data_ptr()), x.numel()])",
        "y = torch.empty_like(x)\n    lib.copy(x.data_ptr(), y.data_ptr(), x.numel())\n    return y",
        "assert x.is_cuda and x.dim() == 2\n    lib.copy(x.data_ptr(), x.numel())",
        "copy_kernel[(x.numel(),)](x, x.numel(), triton.cdiv(x.numel(), 2))",
        "grid = (1,)\n    copy_kernel[grid](x, x.numel())",
        "copy_kernel[(1,)](x, x.numel(), num_warps=4)",
        "copy_kernel[lambda meta: (triton.cdiv(x.numel(), 4),)](x, x.numel())",
    ],
)
def test_nobody_looks(body: str) -> None:
    (found,) = findings(f"{START}def launch(x):\n    {body}\n", CODE)
    assert "`x`" in found.message
    assert found.edits == ()


@pytest.mark.parametrize(
    "body",
    [
        "assert x.is_contiguous()\n    lib.copy(x.data_ptr(), x.numel())",
        "lib.copy(x.data_ptr(), x.numel(), x.stride(0))",
        "strides = x.stride()\n    lib.copy(x.data_ptr(), *strides)",
        "x = x.contiguous()\n    lib.copy(x.data_ptr(), x.numel())",
        "x = prepare(x)\n    lib.copy(x.data_ptr(), x.numel())",
        "require_contiguous(x)\n    lib.copy(x.data_ptr(), x.numel())",
        "assert all(each.is_contiguous() for each in (x,))\n    lib.copy(x.data_ptr(), x.numel())",
        "y = x.contiguous()\n    lib.copy(y.data_ptr(), y.numel())",
        "assert scale.is_contiguous()\n    lib.copy(x.data_ptr(), scale.data_ptr())",
        "if x.data_ptr() % 16:\n        raise ValueError",
        "return x.data_ptr()",
        "cache[x.data_ptr()] = 1",
        "print(x.data_ptr())",
        "grid = (1,)\n    copy_kernel[grid](x, x.stride(0), x.numel())",
        "HANDLERS['grid'](x, x.numel())",
        "grid = (1,)\n    copy_kernel[grid](x.contiguous(), x.numel())",
    ],
)
def test_somebody_looks_or_nothing_is_read(body: str) -> None:
    assert findings(f"{START}def launch(x):\n    {body}\n", CODE) == ()


def test_a_caller_in_the_same_file_may_look() -> None:
    text = f"{START}def _launch(x):\n    lib.copy(x.data_ptr(), x.numel())\n\n"
    assert len(findings(f"{text}def copy(x):\n    return _launch(x)\n", CODE)) == 1
    assert findings(f"{text}def copy(x):\n    return _launch(x.contiguous())\n", CODE) == ()
    guarded = "def copy(x):\n    return _launch(x)\n\n@require_contiguous\ndef entry(x):\n    return copy(x)\n"
    assert findings(f"{text}{guarded}", CODE) == ()


def test_numbers_are_no_tensors() -> None:
    (found,) = findings(
        f"{START}def launch(x, n, eps: float, grid):\n    copy_kernel[grid](x, n, x.numel(), eps)\n", CODE
    )
    assert "`x`" in found.message
    assert "`n`" not in found.message
    assert "`eps`" not in found.message


def test_an_argument_is_told_once_a_function() -> None:
    body = "if fast:\n        lib.copy(x.data_ptr())\n    else:\n        lib.slow_copy(x.data_ptr())"
    assert len(findings(f"{START}def launch(x, fast):\n    {body}\n", CODE)) == 1


def test_a_wrapper_with_the_name_of_its_kernel() -> None:
    """`lib.square` in another function is no call of `square`."""
    text = """
import ctypes
import torch

lib = ctypes.CDLL(None)

def square(x):
    lib.square(ctypes.c_void_p(x.data_ptr()), x.numel())

def checked(x):
    x = x.contiguous()
    lib.square(ctypes.c_void_p(x.data_ptr()), x.numel())
"""
    assert [finding.site.function for finding in findings(text, "SW308")] == ["square"]


def test_the_advice_names_every_argument() -> None:
    text = """
import ctypes
import torch

lib = ctypes.CDLL(None)

def add(x, y):
    lib.add(x.data_ptr(), y.data_ptr(), x.numel())
"""
    (finding,) = findings(text, "SW308")
    assert finding.advice is not None
    assert "`x.is_contiguous()` and `y.is_contiguous()`" in finding.advice


KERNEL = """
import torch
import triton

@triton.jit
def add(x, y, out, size, BLOCK):
    pass

def total(x, y):
    out = torch.empty(x.shape)
    {0}(x, y, out, x.numel(), {1})
    return out
"""


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("launch", ["add[(1,)]", "add[(triton.cdiv(x.numel(), 4),)]", "add[x.numel() // 4,]"])
@pytest.mark.parametrize("block", ["4", "BLOCK=4"])
def test_launches_of_kernels_of_the_file(launch: str, block: str) -> None:
    text = KERNEL.format(launch, block)
    x = torch.arange(6.0).reshape(2, 3)
    total = run(text)["total"]
    assert torch.equal(total(x, x), 2 * x)
    assert not torch.equal(total(x.t(), x.t()), 2 * x.t())
    (found,) = findings(text, CODE)
    assert "`x`" in found.message
    assert findings(text.replace("out, x.numel()", "out, *y.stride()"), CODE) == ()
    assert findings(text.replace("@triton.jit\n", ""), CODE) == ()
