"""Operators and samples by their names, as the command line gives them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from stridewise.checks.operators import load
from stridewise.checks.operators.load import load_op
from stridewise.checks.operators.options import Options
from stridewise.errors import UsageError

SOURCE = """
import torch
from torch import nn

def scale(x, by=2):
    return x * by

def scale_sample():
    return torch.ones(2, 3), 3

def named(): return {"x": torch.ones(2), "by": 4}
def both(): return (torch.ones(2),), {"by": 5}
def one(): return torch.ones(7)
def nothing(): return None
def needs(size): return torch.ones(size)
number = 3

class Kernels:
    factor = 2
    def method(self, x): return x * self.factor
    @staticmethod
    def method_sample(): return torch.ones(2)
    @staticmethod
    def free(x): return x

class Takes:
    def __init__(self, size): pass
    def method(self, x): return x

kernels = Kernels()
kernels.factor = 9

class Net(nn.Module):
    def forward(self, x): return x + 1

class Sized(nn.Module):
    def __init__(self, size): super().__init__()

def make_net(): return Net()
def make_number(): return 3

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return 2 * x
    @staticmethod
    def backward(ctx, g): return 2 * g
"""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    before = set(sys.modules), list(sys.path)
    file = tmp_path / "kernels_of_a_user.py"
    file.write_text(SOURCE)
    yield str(file)
    for name in set(sys.modules) - before[0]:
        if name.startswith("kernels_of_a_user"):
            del sys.modules[name]
    sys.path[:] = before[1]


def test_a_sample_beside_the_operator(path: str) -> None:
    fn, args, kwargs, name = load_op(f"{path}:scale")
    assert (name, kwargs, len(args)) == ("scale", {}, 2)
    assert fn(*args, **kwargs).tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize(
    ("sample", "result"), [("named", [4.0] * 2), ("both", [5.0] * 2), ("one", [2.0] * 7)], ids=lambda value: str(value)
)
def test_forms_of_a_sample(path: str, sample: str, result: list[float]) -> None:
    fn, args, kwargs, _ = load_op(f"{path}:scale", f"{path}:{sample}")
    assert fn(*args, **kwargs).tolist() == result


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("Kernels.method", 2.0),
        ("kernels.method", 9.0),
        ("Kernels.free", 1.0),
        ("Net", 2.0),
        ("make_net", 2.0),
        ("Twice.apply", 2.0),
    ],
)
def test_forms_of_an_operator(path: str, name: str, result: float) -> None:
    fn, args, kwargs, shown = load_op(f"{path}:{name}", f"{path}:one")
    assert shown == name
    assert fn(*args, **kwargs).tolist() == [result] * 7


def test_the_class_of_a_function_of_autograd_is_an_operator(path: str) -> None:
    fn, *_ = load_op(f"{path}:Twice", f"{path}:one")
    assert isinstance(fn, type)
    assert issubclass(fn, torch.autograd.Function)


@pytest.mark.parametrize("target", ["torch.nn.functional:relu", "torch:relu", "torch.ops.aten.relu.default"])
def test_operators_of_torch(path: str, target: str) -> None:
    fn, args, kwargs, _ = load_op(target, f"{path}:one")
    assert fn(*args, **kwargs).tolist() == [1.0] * 7


def test_a_sample_beside_a_method(path: str) -> None:
    assert [tuple(tensor.shape) for tensor in load_op(f"{path}:Kernels.method")[1]] == [(2,)]


@pytest.mark.parametrize(
    ("target", "sample", "message"),
    [
        ("{}:Net", None, "There is no sample of arguments for Net.\nExpected: a function Net_sample beside it"),
        ("{}:missing", "{}:one", "missing is not there in .*\nIt has scale, scale_sample, named"),
        ("{}:number", "{}:one", "number is no function"),
        ("{}:make_number", "{}:one", "make_number is no function"),
        ("{}:Sized", "{}:one", r"Sized is a class that takes arguments \(size\).\nExpected: an instance of it"),
        ("{}:Takes.method", "{}:one", r"Takes is a class that takes arguments \(size\)"),
        ("{}:scale", "{}:needs", r"needs takes arguments \(size\).\nExpected: a function without."),
        ("{}:scale", "{}:nothing", "The sample is NoneType"),
        ("{}:scale", "{}:number", "number is no function"),
        ("{}:scale", "nowhere.py:one", "There is no file nowhere.py"),
        ("{}", "{}:one", "is no target"),
        ("no_such_module:op", "{}:one", "There is no module no_such_module"),
    ],
)
def test_mistakes_are_told_in_a_line_or_three(path: str, target: str, sample: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        load_op(target.format(path), None if sample is None else sample.format(path))
    assert len(str(raised.value).splitlines()) <= 3


def test_what_an_import_raises_is_the_programs(tmp_path: Path) -> None:
    file = tmp_path / "broken_of_a_user.py"
    file.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_op(f"{file}:op")


# ------------------------------------------------------------------------------------------- to another interpreter


def test_what_can_be_imported_by_another_interpreter(path: str) -> None:
    def local(x: object) -> object:
        return x

    fn, *_ = load_op(f"{path}:scale")
    method, *_ = load_op(f"{path}:kernels.method", f"{path}:one")
    assert load.target_of(fn) == "kernels_of_a_user:scale"
    assert load.target_of(torch.nn.functional.softmax) == "torch.nn.functional:softmax"
    found: list[Callable[..., object]] = [local, lambda x: x, method, torch.nn.Linear(2, 2)]
    assert [load.target_of(each) for each in found] == [None] * len(found)


def test_a_sample_keeps_its_layout_on_the_way(path: str) -> None:
    load_op(f"{path}:scale")
    x = torch.arange(6.0).reshape(2, 3).t()
    probe = load.unpacked(load.packed(f"{path}:scale", (x,), {"by": 3}, Options(), "scale"))
    assert [(operand.name, operand.sizes) for operand in probe.describe().operands] == [("x", (3, 2))]


def test_a_sample_that_stays_where_it_is(path: str) -> None:
    with pytest.raises(UsageError, match="can't be sent to another process"):
        load.packed(f"{path}:scale", (lambda: 0,), {}, Options(), "scale")


def test_a_module_that_fails_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "broken_of_a_user.py"
    file.write_text("1 / 0\n")
    payload = load.packed(f"{file}:op", (torch.ones(2),), {}, Options(), "op")
    with pytest.raises(UsageError, match="can't be imported in a process of its own: ZeroDivisionError"):
        load.unpacked(payload)
