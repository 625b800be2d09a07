"""Code that is generated and not built."""

import shutil

import pytest
import torch

from stridewise.lab.generated import code, copies, generated, kernels, launches

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="torch.compile wants a C++ compiler"
)


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + y) + 1


def test_kernels_and_copies_are_those_that_are_built():
    from stridewise.compiled.explain import explain_compile

    def product(x, w):
        return torch.relu(x[:, ::2] @ w)

    wide, square = torch.randn(16, 32), torch.randn(16, 16)
    found = generated(product, wide, square)
    built = explain_compile(product, wide, square, compare=False, try_without=False)
    assert [launch.name for launch in launches(found)] == [launch.name for launch in launches(built)]
    assert (kernels(found), copies(found)) == (kernels(built), copies(built)) == (2, 1)
    assert "extern_kernels.mm" in code(found)


def test_what_is_compiled_later_computes():
    """Whoever compiles the same code gets kernels that were built."""
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    assert kernels(generated(chain, x, y)) == 1
    with torch.no_grad():
        found = torch.compile(chain)(x, y)
    assert torch.equal(found, chain(x, y))


def test_an_error_inside_leaves_torch_as_it_was():
    from torch._inductor.async_compile import AsyncCompile

    kept = AsyncCompile.cpp_pybinding

    def fails(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generated(fails, torch.zeros(2))
    assert AsyncCompile.cpp_pybinding is kept
