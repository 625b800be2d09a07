"""The smallest layout as a program: it fails with the operator that is wrong, and not with one that is right."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from stridewise.checks.operators import sandbox
from stridewise.checks.operators.check import check_op
from stridewise.checks.operators.expressions import Kind, counted, drawn, laid_out, literal, zeros
from stridewise.checks.operators.grid import grid, place
from stridewise.checks.operators.memory import arranged_values
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.sandbox import Executed
from stridewise.checks.operators.snippet import imports
from stridewise.results.checks import Snippet

HERE = Path(__file__).parent


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As a program has them that lies in their folder."""
    monkeypatch.syspath_prepend(HERE)
    return __import__("kernels")


def snippets(fn: Callable[..., Any], *sample: Any, **options: Any) -> tuple[Snippet, ...]:
    found = check_op(fn, *sample, time_limit=20.0, **options)
    assert found.snippets
    return found.snippets


def executed(code: str, op: Callable[..., Any]) -> Executed:
    """Run it in a child, with `op` where it imports none."""
    bound = Bound(op, (torch.ones(2),), {})
    with sandbox.runner(bound, Options(), "op", None, spawn=False) as runner:
        ended = runner.execute(code)
    assert ended is not None
    return ended


def x() -> Tensor:
    return torch.arange(1.0, 13).reshape(3, 4)


@pytest.mark.parametrize(
    ("wrong", "right", "outputs"),
    [
        ("assumes_contiguous", "copies_first", 0),
        ("empty_like_of_the_original", "copies_first", 0),
        ("address_of_temporary", "copies_first", 0),
        ("reads_beyond", "copies_first", 0),
        ("in_place_on_copy", "right_in_place", 0),
        ("in_place_flat", "right_in_place", 0),
        ("writes_beyond", "right_out", 1),
        ("into_flat_output", "right_out", 1),
        ("_FlatBackward", "_Twice", 0),
        ("_ExpandedBackward", "_Twice", 0),
        ("refuses_darkly", "copies_first", 0),
    ],
)
def test_kernels(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: str, right: str, outputs: int) -> None:
    monkeypatch.setattr(kernels, "right_in_place", lambda x: x.mul_(2), raising=False)
    monkeypatch.setattr(kernels, "right_out", lambda x, out: out.copy_(2 * x), raising=False)
    found = snippets(getattr(kernels, wrong), x(), *[torch.zeros(3, 4)] * outputs)
    for each in found:
        assert "Tried once more" not in each.code
        assert f"from kernels import {wrong}" in each.code
        ended = executed(each.code, torch.relu)
        assert (ended.how, ended.error) == ("raised", "ValueError" if wrong == "refuses_darkly" else "AssertionError")
        cured = executed(each.code.replace(wrong, right), torch.relu)
        assert cured == Executed("passed")


def test_a_program_of_a_kernel_is_short_and_needs_no_more_than_it_says(kernels: ModuleType) -> None:
    (found,) = snippets(kernels.assumes_contiguous, x())
    assert found.layout == "`x.t()`, (2, 2) with strides (1, 2)"
    assert found.code == (
        "import torch\n"
        "from kernels import assumes_contiguous as op\n"
        "\n"
        "x = torch.arange(4.0).reshape(2, 2).t()  # (2, 2) with strides (1, 2)\n"
        "\n"
        "expected = op(x.contiguous())\n"
        "torch.testing.assert_close(op(x), expected)\n"
    )


def test_strides_that_a_fake_kernel_promises(kernels: ModuleType) -> None:
    operators = kernels.operators()
    (found,) = snippets(operators["fake_like_input"], x())
    assert executed(found.code, operators["fake_like_input"]).error == "AssertionError"
    assert executed(found.code, operators["right_fake"]) == Executed("passed")


def test_a_crash_ends_the_program() -> None:
    def op(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            os.abort()
        return 2 * x

    (found,) = snippets(op, x())
    assert "op(x)  # its process was ended by SIGABRT" in found.code
    assert executed(found.code, op).how == "crashed"
    assert executed(found.code, torch.relu) == Executed("passed")


def test_a_result_inside_another() -> None:
    def op(x: Tensor) -> dict[str, Tensor]:
        return {"right": x, "wrong": x.as_strided(x.shape, x.contiguous().stride()) if x.stride(0) == 1 else x}

    (found,) = snippets(op, x(), gradients=False, fake=False)
    assert executed(found.code, op).error == "AssertionError"


def test_arguments_that_are_no_tensors_and_values_that_matter() -> None:
    """An index that has to be in range, and what can't be written down."""

    def op(table: Tensor, index: Tensor, scale: float, *, names: list[str], made: object) -> Tensor:
        flat = table.as_strided((table.numel(),), (1,), table.storage_offset())
        rows, columns = table.shape
        return flat.view(rows, columns)[index] * scale

    sample = torch.randn(4, 3), torch.tensor([1, 3, 0])
    (found, *_) = check_op(
        op, *sample, math.inf, kwargs={"names": ["a"], "made": object()}, gradients=False, fake=False
    ).snippets
    assert "# op = …  has to be defined here" in found.code
    assert "argument_4 = ...  # an object: as in the sample" in found.code
    assert "op(" in found.code
    assert "float('inf'), names=['a'], made=argument_4)" in found.code
    compile(found.code, "snippet", "exec")


def test_a_parameter_in_a_layout() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            flat = self.weight.as_strided((2, 3), (3, 1)) if self.weight.stride(1) != 1 else self.weight
            return x @ flat.t()

    net = Net()
    found = check_op(net, torch.ones(4, 3), gradients=False, fake=False).snippets
    assert found
    for each in found:
        assert "op.weight.data" in each.code
        assert executed(each.code, net).error == "AssertionError"
    assert net.weight.stride() == (3, 1)


def test_a_fault_that_is_not_seen_again_is_told(tmp_path: Path) -> None:
    count = tmp_path / "count"

    def op(x: Tensor) -> Tensor:
        if x.is_contiguous() or count.exists():
            return 2 * x
        count.touch()
        raise ValueError("once")

    (found,) = snippets(op, x(), gradients=False, fake=False)
    assert found.code.startswith("# It was seen once, and not again")
    compile(found.code, "snippet", "exec")


def test_a_path_that_no_interpreter_looks_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernels_of_a_user.py"
    file.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x): return x\n"
        "class Kernels:\n"
        "    def flat(self, x): return x\n"
        "def flat(x): return x\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    bound = Bound(lambda x: x, (torch.ones(2),), {})
    inserted = f"sys.path.insert(0, {str(tmp_path)!r})"
    assert imports(bound, f"{file}:flat")[-2:] == [inserted, "from kernels_of_a_user import flat as op"]
    assert imports(bound, f"{file}:Net")[-1] == "op = Net()"
    assert imports(bound, f"{file}:Kernels.flat")[-1] == "op = Kernels().flat"
    monkeypatch.chdir(tmp_path.parent)
    assert f"sys.path.insert(0, {tmp_path.name!r})" in imports(bound, f"{file}:flat")
    del sys.modules["kernels_of_a_user"]


def test_a_target_that_is_not_for_this_process_to_import() -> None:
    bound = Bound(lambda x: x, (torch.ones(2),), {})
    assert imports(bound, "no_such_module:Kernels.flat")[-1] == "op = Kernels.flat"


@pytest.mark.parametrize(
    ("fn", "line"),
    [
        (torch.relu, "op = torch.relu"),
        (torch.ops.aten.relu.default, "op = torch.ops.aten.relu.default"),
        (torch.Tensor.add_, "op = torch.Tensor.add_"),
    ],
    ids=["function", "overload", "method"],
)
def test_operators_of_torch(fn: Callable[..., Any], line: str) -> None:
    assert imports(Bound(fn, (torch.ones(2), torch.ones(2)), {}), None)[-1] == line


# ---------------------------------------------------------------------------------------------------------- expressions

DTYPES = ["float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]


@given(st.lists(st.integers(0, 4), min_size=0, max_size=4), st.sampled_from(DTYPES), st.data())
def test_expressions_give_the_layout(sizes: list[int], dtype: str, data: st.DataObject) -> None:
    found = grid(sizes, read_only=True)
    if not found:
        return
    arrangement = data.draw(st.sampled_from(found))
    fill = data.draw(st.sampled_from([counted, zeros, *([drawn] if dtype.startswith(("float", "complex")) else [])]))
    tensor = eval(laid_out(tuple(sizes), arrangement, fill(Kind(dtype))), {"torch": torch})
    layout = place(arrangement, sizes).layout
    assert tuple(tensor.shape) == layout.sizes
    assert str(tensor.dtype) == f"torch.{dtype}"
    moving = [dim for dim, size in enumerate(sizes) if size > 1 or arrangement.odd_ones]
    if math.prod(sizes):
        assert [tensor.stride(dim) for dim in moving] == [layout.strides[dim] for dim in moving]
        assert bool(tensor.storage_offset()) == bool(layout.offset)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.sampled_from(["float32", "int64", "bool"]), st.data())
def test_literals_give_the_values_too(sizes: list[int], dtype: str, data: st.DataObject) -> None:
    found = grid(sizes, read_only=True)
    if not found:
        return
    arrangement = data.draw(st.sampled_from(found))
    values = (torch.arange(math.prod(sizes)).reshape(sizes) + 1).to(getattr(torch, dtype))
    if dtype == "float32":
        values.view(-1)[0] = math.nan
    values = arranged_values(values, arrangement)
    text = literal(values, tuple(sizes), arrangement, Kind(dtype))
    if text is None:
        return
    tensor = eval(text, {"torch": torch})
    layout = place(arrangement, sizes).layout
    torch.testing.assert_close(tensor, values, equal_nan=True)
    moving = [dim for dim, size in enumerate(sizes) if size > 1]
    assert [tensor.stride(dim) for dim in moving] == [layout.strides[dim] for dim in moving]
