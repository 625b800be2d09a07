"""Where a function may write to a tensor, in branches that a recording saw and in those that it did not."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from stridewise.repair.candidate import Kind
from stridewise.repair.kinds import copy_at_origin, drop_copy, hoist
from stridewise.repair.reading import writing

from .running import context_of, load, proposals

DROP, HOIST, ORIGIN = (Kind.from_module(module) for module in (drop_copy, hoist, copy_at_origin))

PROGRAM = """
import operator
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
tab = torch.randn(64, 32)
x = torch.randn(8, 32)
hit = False
keep, norm, eye, drop = [], nn.LayerNorm(64), nn.Identity(), nn.Dropout()
def own(w):
    return w
def program():
    w = tab.t().contiguous()
    {body}
    return x @ w
"""

WRITES = """
w.mul_(2)
w *= 2
w[0] = 1
w[0] += 1
del w[0]
w.data = tab
w.data[0] = 1
w.data.mul_(2)
w.T.mul_(2)
w.view(-1)[:3].mul_(2)
w.__setitem__(0, 1)
w.__imul__(2)
operator.imul(w, 2)
setattr(w, "data", tab)
w.requires_grad = True
w.requires_grad_()
torch.mul(w, 2, out=w)
torch.max(w, 0, out=(w, tab))
torch.relu_(w)
torch._foreach_mul_([w], 2)
nn.init.normal_(w)
nn.init.normal_(tensor=w)
F.relu(w, inplace=True)
tab.mul_(2)
tab.data[0] = 1
v = w.view(-1); v.mul_(2)
v = w; u = v; u += 1
v: torch.Tensor = w[0]; v.mul_(2)
v, _ = w, 1; v.mul_(2)
for row in w: row.mul_(2)
for row, _ in zip(w, x): row += 1
[row.mul_(2) for row in w]
if (v := w[0]) is not None: v.mul_(2)
v = w if hit else tab; v.mul_(2)
v = tab or w; v.mul_(2)
v = [w] + [tab]; v[0].mul_(2)
v = eye(w); v += 1
v = drop(w); v += 1
v = own(w); v += 1
v = x + 1; v.data = w; v += 1
v = +w; v += 1
(lambda: w.mul_(2))()
w.numpy()
np.asarray(w)
np.from_dlpack(w)
torch.utils.dlpack.to_dlpack(w)
memoryview(w)
w.data_ptr()
keep.append(w.untyped_storage())
w.__dlpack__()
w.__array_interface__
""".strip().splitlines()

READS = """
w = w + 1
w = w * 2; w = -w
w.mul(2)
w.__neg__()
w.is_contiguous()
keep.append(w)
v = (w + 1).view(-1); v.mul_(2)
v = w @ w.T; v += 1
v = 0; v += 1
v = w.shape[0]; assert v
keep[:] = []
np.array(3).data
x.add_(w)
torch.add(w, 1, out=x)
""".strip().splitlines()


def body(line: str) -> str:
    return "\n        ".join(line.split("; "))


@pytest.mark.parametrize("line", WRITES)
def test_a_branch_that_was_not_taken_may_write(line: str, tmp_path: Path) -> None:
    source = PROGRAM.format(body=f"if hit:\n        {body(line)}")
    assert proposals(DROP, context_of(load(tmp_path, source))) == []


@pytest.mark.parametrize("line", READS)
def test_what_only_reads_loses_nothing(line: str, tmp_path: Path) -> None:
    source = PROGRAM.format(body=f"if hit:\n        {body(line)}")
    assert len(proposals(DROP, context_of(load(tmp_path, source)))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "y = x.T * 2\n    y += 1",
        "y = norm(w)\n    y += 1",
        "y = F.softmax(w, -1)\n    y.mul_(2)",
        "w = norm(w).view(32, 64)\n    w += 1",
    ],
)
def test_writes_that_ran_are_known_to_be_to_other_memory(lines: str, tmp_path: Path) -> None:
    assert len(proposals(DROP, context_of(load(tmp_path, PROGRAM.format(body=lines))))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "y = drop(w)\n    y += 1",  # in evaluation it gives what it is given
        "y = eye(w) if hit else w + 1\n    y += 1",
        "y = w + 1\n    if hit:\n        y = w\n    y += 1",
    ],
)
def test_a_write_that_ran_may_be_to_the_copy_another_time(lines: str, tmp_path: Path) -> None:
    assert proposals(DROP, context_of(load(tmp_path, PROGRAM.format(body=lines)))) == []


def test_a_parameter_that_only_training_would_write_to(tmp_path: Path) -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(64, 32))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        w = self.table.detach().t().contiguous()
        if self.training:
            {write}
        return x @ w
model = Model().eval()
x = torch.randn(8, 32)
def program():
    return model(x)
"""
    for number, (write, proposed) in enumerate([("w.mul_(2)", 0), ("self.table.data *= 2", 0), ("self.calls += 1", 1)]):
        context = context_of(load(tmp_path, source.format(write=write), f"example{number}"))
        assert len(proposals(DROP, context)) == proposed


@pytest.mark.parametrize(
    ("line", "proposed"), [("v = tab.view(-1); v.mul_(2)", 0), ("v = tab + 1; v.mul_(2)", 1), ("tab.numpy()", 0)]
)
def test_a_copy_is_not_shared_if_a_branch_may_write_to_its_source(line: str, proposed: int, tmp_path: Path) -> None:
    source = f"""
import torch
norm = torch.nn.LayerNorm(64)
def step(tab, hit=False):
    total = 0
    for _ in range(3):
        total = total + norm(tab)
        if hit:
            {line.replace("; ", chr(10) + " " * 12)}
    return total
tab = torch.randn(64, 32).t()
def program():
    return step(tab)
"""
    assert len(proposals(HOIST, context_of(load(tmp_path, source)))) == proposed


@pytest.mark.parametrize(("line", "proposed"), [("v = w.view(-1); v.mul_(2)", 0), ("v = w + 1; v.mul_(2)", 1)])
def test_a_copy_that_is_asked_for_is_not_shared_if_it_may_be_written_to(
    line: str, proposed: int, tmp_path: Path
) -> None:
    source = f"""
import torch
tab = torch.randn(64, 32)
x = torch.randn(8, 32)
def step(hit=False):
    total = 0
    for _ in range(3):
        w = tab.t().contiguous()
        if hit:
            {line.replace("; ", chr(10) + " " * 12)}
        total = total + x @ w
    return total
def program():
    return step()
"""
    assert len(proposals(HOIST, context_of(load(tmp_path, source)))) == proposed


@pytest.mark.parametrize(("line", "proposed"), [("y.mul_(2)", 0), ("x.mul_(2)", 0), ("y = y * 2", 1)])
def test_a_view_that_may_be_written_through_gets_no_copy(line: str, proposed: int, tmp_path: Path) -> None:
    source = f"""
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program(hit=False):
    y = x.permute(0, 2, 1)
    if hit:
        {line}
    return norm(y), norm(y * 2)
"""
    assert bool(proposals(ORIGIN, context_of(load(tmp_path, source)))) == bool(proposed)


@pytest.mark.parametrize("name", sorted(writing._SAME_MEMORY))
def test_attributes_that_share_memory(name: str) -> None:
    for x in (torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64)):
        if name == "imag" and not x.is_complex():
            continue
        assert getattr(x, name).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_functions_that_share_memory_for_some_operands() -> None:
    x = torch.randn(3, 4)
    given: dict[str, Any] = {"to": torch.float32, "type": torch.float32, "type_as": x, "reshape": (3, 4)}
    shared = 0
    for name in sorted(writing._DEPENDS & set(dir(x)) - {"type"}):
        try:
            made = getattr(x, name)(given[name]) if name in given else getattr(x, name)()
        except (TypeError, UserWarning):  # it needs arguments, or is an experiment
            continue
        shared += isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert shared >= 6


def test_methods_behind_operators_that_write() -> None:
    assert {"__iadd__", "__imul__", "__iand__", "__ior__", "__itruediv__", "__setitem__"} <= writing._OPERATORS
    assert not {"__invert__", "__index__", "__inv__"} & writing._OPERATORS
    x = torch.ones(3, dtype=torch.int64)
    for name in sorted(writing._OPERATORS & set(vars(torch.Tensor)) - {"__setitem__", "__delitem__"}):
        version = x._version
        try:
            assert getattr(x, name)(1) is x
        except (RuntimeError, TypeError):  # not for these operands
            continue
        assert x._version > version


def test_every_example_of_a_write_is_python() -> None:
    for line in (*WRITES, *READS):
        ast.parse(line)
