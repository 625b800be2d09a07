"""Kernels of the experiment on pointers, and its way without a compiler."""

import shutil

import pytest
import torch
from tests.lab.conftest import HASTY

from stridewise.lab.bench import Bench, Effort
from stridewise.lab.devices import Processor
from stridewise.lab.experiments import pointer_argument

THOROUGH = Effort(HASTY.rounds, HASTY.sample_ns, quick=False)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0).view(2, 3),
        torch.arange(6.0).view(2, 3).t(),
        torch.arange(12.0).view(3, 4)[1:, ::2],
        torch.arange(3.0).expand(2, 3),
    ],
    ids=["dense", "transposed", "sliced", "expanded"],
)
def test_a_kernel_with_strides_finds_every_element(value):
    assert torch.equal(pointer_argument.strided(value), 2 * value)


def test_a_kernel_without_them_goes_through_memory():
    dense = torch.arange(6.0).view(2, 3)
    assert torch.equal(pointer_argument.linear(dense), 2 * dense)
    assert pointer_argument.linear(dense.t()).flatten().tolist() == (2 * dense).flatten().tolist()


def _pointers(ranks):
    bench = Bench(Processor(), THOROUGH, ranks)
    pointer_argument.run(bench, rows=4, columns=3)
    return next(found for claim, found in bench.predictions if claim == "C117")


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_a_full_run_compiles_the_binding(ranks):
    found = _pointers(ranks)
    assert found.came_true is False
    assert "makes [0.0, 0.0, 0.0, 0.0], without an error" in found.measured


def test_without_a_compiler_it_is_not_tested(ranks, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = _pointers(ranks)
    assert (found.came_true, found.measured) == (None, "it takes a C++ compiler")


@pytest.mark.skipif(shutil.which("false") is None, reason="needs a program that fails")
def test_with_a_compiler_that_fails_neither(ranks, monkeypatch):
    fails = shutil.which("false")
    monkeypatch.setattr(shutil, "which", lambda _: fails)
    found = _pointers(ranks)
    assert (found.came_true, found.measured) == (None, "the C++ compiler does not get through it")
