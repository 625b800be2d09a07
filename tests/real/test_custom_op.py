"""The template of a C++ operator is built, and called over layouts, in forward, backward and under the compiler."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch

from stridewise.checks.contracts import expect_layout

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_op" / "scale.py"

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
    pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("stridewise_custom_op_template", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[spec.name] = module  # Dynamo looks a function's globals up by its module's name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAX_JOBS", "1")
        module.build(str(tmp_path_factory.mktemp("build")))
    return module


def layouts(values):
    """The same values in many layouts."""
    rows, columns = values.shape
    wide = torch.zeros(rows + 2, 2 * columns + 3, dtype=values.dtype)
    offset = wide[1 : rows + 1, 2 : columns + 2]
    steps = torch.zeros(rows, 2 * columns, dtype=values.dtype)[:, ::2]
    permuted = torch.zeros(columns, rows, dtype=values.dtype).t()
    for tensor in (offset, steps, permuted):
        tensor.copy_(values)
    return [values, offset, steps, permuted, values[:1].expand(rows, columns), values[:0], values[:, :1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_over_layouts(template, dtype):
    x, w = torch.randn(5, 7, dtype=dtype), torch.randn(14, dtype=dtype)
    for given in layouts(x):
        for weight in (w[: given.size(1)], w[::2][: given.size(1)], w[:1].expand(given.size(1))):
            assert torch.equal(template.scale(given, weight), given * weight)
        assert torch.equal(template.scale_flat(given, 2.0), given * 2)


def test_gradients_over_layouts(template):
    for given in layouts(torch.randn(3, 4, dtype=torch.float64)):
        x, w = given.detach().requires_grad_(), torch.randn(given.size(1), dtype=torch.float64, requires_grad=True)
        template.scale(x, w).sum().backward()
        assert torch.allclose(x.grad, w.detach().expand_as(x))
        assert torch.allclose(w.grad, given.sum(0))
        y = given.detach().requires_grad_()
        template.scale_flat(y, 3.0).sum().backward()
        assert torch.equal(y.grad, torch.full_like(y, 3.0))


def test_what_it_refuses_says_what_it_got(template):
    flat = torch.ops.stridewise_example.scale_flat
    with pytest.raises(RuntimeError, match=r"x must be contiguous, its strides are \[1, 4\]"):
        flat(torch.randn(3, 4).t(), 2.0)
    with pytest.raises(RuntimeError, match="x is Float, and w is Double"):
        template.scale(torch.randn(3, 4), torch.randn(4, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match=r"'stridewise_example::scale'.*SparseCPU"):
        torch.ops.stridewise_example.scale(torch.eye(3).to_sparse(), torch.randn(3))


def test_torchs_own_check(template):
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
        torch.library.opcheck(torch.ops.stridewise_example.scale.default, (x.requires_grad_(), torch.randn(4)))


def test_under_the_compiler(template):
    x, w = torch.randn(4, 3), torch.randn(4)
    compiled = torch.compile(lambda x: template.scale_flat(template.scale(x.t() + 1, w), 2.0), fullgraph=True)
    assert torch.allclose(compiled(x), (x.t() + 1) * w * 2)


def test_the_contract_is_what_makes_the_flat_one_safe(template):
    held = expect_layout(x="contiguous", mode="convert")(torch.ops.stridewise_example.scale_flat)
    x = torch.randn(4, 3).t()
    assert torch.equal(held(x, 2.0), x * 2)


def test_its_conformance(template):
    check = pytest.importorskip("stridewise.checks.operators.check", reason="conformance is not built yet")
    for op, sample in (
        (template.scale, (torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True))),
        (template.scale_flat, (torch.randn(3, 4, requires_grad=True), 2.0)),
    ):
        found = check.check_op(op, *sample)
        assert found.ok, found.findings
        assert {operand.verdict for operand in found.operands} == {"honours strides"}
