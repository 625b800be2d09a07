import ctypes
import sys
from types import ModuleType

import pytest
import torch

from ..texts import findings, fixed, rule_of, run

CODE = "SW320"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a compiled module that takes its tensors for contiguous, as most do."""

    def copy(x: torch.Tensor, out: torch.Tensor) -> None:
        ctypes.memmove(out.data_ptr(), x.data_ptr(), 4 * x.numel())

    module = ModuleType("my_extension")
    module.copy = copy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_extension", module)


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("at", [0, 1])
def test_the_output_is_permuted_and_right_with_the_fix(at: int) -> None:
    example = rule_of(CODE).fires[at]
    out, wanted = run(example.source)["program"]()
    assert not torch.equal(out, wanted)
    assert torch.equal(out.sort().values.sum(), wanted.sum())  # the values are all there
    out, wanted = run(example.fixed or "")["program"]()
    assert torch.equal(out, wanted)


def test_what_is_quiet_is_right() -> None:
    names = run(rule_of(CODE).quiet[0])
    x = torch.arange(6.0).reshape(2, 3).t()
    assert all(torch.equal(out, x) for out in (*names["copy"](x), names["double"](x), names["rebound"](x)))


@pytest.mark.parametrize("function", ["empty_like", "zeros_like"])
def test_the_copy_may_take_the_name_of_the_original(function: str) -> None:
    text = f"""
import ctypes
import torch

def copy(x):
    out = torch.{function}(x)
    x = x.contiguous()
    ctypes.memmove(out.data_ptr(), x.data_ptr(), 4 * x.numel())
    return out
"""
    x = torch.arange(6.0).reshape(2, 3).t()
    assert not torch.equal(run(text)["copy"](x), x)
    (found,) = findings(text, CODE)
    assert "reads `x.contiguous()`" in found.message
    assert torch.equal(run(fixed(text, CODE))["copy"](x), x)


def test_a_slice_hides_it() -> None:
    """`empty_like` keeps the order of dimensions, and closes gaps."""
    assert torch.empty_like(torch.ones(3, 4).t()).stride() == (1, 4)
    assert torch.empty_like(torch.ones(3, 4)[:, :2]).is_contiguous()
    assert not torch.zeros_like(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)).is_contiguous()


START = "import torch\nimport triton\nfrom kernels import copy_kernel, lib\n\ndef copy(x):\n    "


@pytest.mark.parametrize(
    "body",
    [
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    lib.copy(xc, out)",
        "xc = x.contiguous()\n    out = torch.zeros_like(x, dtype=dtype)\n    lib.copy(xc.data_ptr(), out.data_ptr())",
        "out = torch.empty_like(x)\n    xc = x.contiguous()\n    copy_kernel[(1,)](xc, out, x.numel())",
        "out = torch.empty_like(x)\n    lib.copy(x.contiguous(), out)\n    return out",
        "lib.copy(x.contiguous(), torch.empty_like(x))",
        "out = torch.empty_like(x,)\n    xc = x.contiguous()\n    lib.copy(int(xc.data_ptr()), out.data_ptr())",
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    torch.ops.mine.copy(xc, out)",
        "out = torch.empty_like(x)\n    x = x.contiguous()\n    copy_kernel[(1,)](x, out, x.numel())",
        "out = torch.zeros_like(x)\n    x = x.contiguous()\n    lib.copy(x.data_ptr(), out.data_ptr(), x.numel())",
        "out = torch.empty_like(x)\n    if not x.is_cuda:\n        x = x.contiguous()\n    lib.copy(x, out)",
    ],
)
def test_outputs_like_the_original_are_found(body: str) -> None:
    text = f"{START}{body}\n"
    (found,) = findings(text, CODE)
    assert [edit.safety for edit in found.edits] == ["unsafe"]
    assert findings(fixed(text, CODE), CODE) == ()


@pytest.mark.parametrize(
    "body",
    [
        "xc = x.contiguous()\n    out = torch.empty_like(xc)\n    lib.copy(xc, out)",
        "x = x.contiguous()\n    out = torch.empty_like(x)\n    lib.copy(x, out)",
        "xc = x.contiguous()\n    out = torch.empty_like(x, memory_format=DENSE)\n    lib.copy(xc, out)",
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    torch.add(xc, 1, out=out)",
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    out.copy_(xc)",
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    lib.copy(xc, out, out.stride(0))",
        "xc = x.contiguous()\n    out = torch.empty_like(x)\n    return xc + out",
        "xc = x.contiguous()\n    x = other()\n    out = torch.empty_like(x)\n    lib.copy(xc, out)",
        "assert x.is_contiguous()\n    xc = x.contiguous()\n    out = torch.empty_like(x)\n    lib.copy(xc, out)",
        "out = torch.empty_like(x)\n    lib.copy(x, out)",
        "out = torch.empty_like(x)\n    lib.copy(x, out)\n    x = x.contiguous()",
        "out = torch.empty_like(x)\n    x = other()\n    x = x.contiguous()\n    lib.copy(x, out)",
        "x = x.contiguous()\n    out = torch.empty_like(x)\n    x = x.contiguous()\n    lib.copy(x, out)",
    ],
)
def test_other_outputs_are_let_be(body: str) -> None:
    assert findings(f"{START}{body}\n", CODE) == ()


def test_a_decorator_of_what_calls_it_may_have_made_the_input_contiguous() -> None:
    text = f"{START}out = torch.empty_like(x)\n    lib.copy(x.contiguous(), out)\n\n"
    assert len(findings(f"{text}def entry(x):\n    copy(x)\n", CODE)) == 1
    assert findings(f"{text}@make_contiguous\ndef entry(x):\n    copy(x)\n", CODE) == ()
