"""Contracts in programs that are exported or traced: they stay in, or the export says that it can't have them."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from stridewise.checks.contracts import expect_layout, same_as
from stridewise.errors import ContractError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # torch.export's own
GOOD = torch.arange(12.0).reshape(3, 4)
BAD = torch.arange(12.0).reshape(4, 3).t()
OF_DYNAMO = pytest.mark.needs_torch("2.7", "when Dynamo traces, an export can't be told from compiling")
STRICT = pytest.mark.parametrize("strict", [False, pytest.param(True, marks=OF_DYNAMO)], ids=["not strict", "strict"])


class Runs(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def flatten(**options):
    """A function that goes wrong silently on other strides, as `as_strided` does when it is exported."""

    @expect_layout(**options)
    def flat(x):
        return x.as_strided((12,), (1,)) * 2

    return Runs(flat)


def targets(program):
    return [str(node.target) for node in program.graph.nodes]


def export(model, strict, x=GOOD):
    return torch.export.export(model, (x,), strict=strict)


@STRICT
def test_without_a_contract_torch_is_silently_wrong(strict):
    plain = Runs(lambda x: x.contiguous().as_strided((12,), (1,)) * 2)
    program = export(plain, strict).run_decompositions()
    assert not torch.equal(program.module()(BAD), plain(BAD)), "torch keeps contiguous() in exports by now"


@STRICT
def test_convert_is_right_with_a_layout_other_than_the_examples(strict, tmp_path):
    model = flatten(x="contiguous", mode="convert")
    program = export(model, strict)
    assert "stridewise.lay_out.default" in targets(program)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    for each in (program, program.run_decompositions(), loaded, loaded.run_decompositions()):
        for x in (GOOD, BAD, torch.randn(3, 8)[:, ::2]):
            assert torch.equal(each.module()(x), x.flatten() * 2)


def test_a_saved_program_runs_in_another_process(tmp_path):
    path = tmp_path / "program.pt2"
    torch.export.save(export(flatten(x="contiguous", mode="convert"), False), path)
    code = f"""
import warnings; warnings.simplefilter("ignore")
import torch
from stridewise.checks.contracts import register_ops
register_ops()
program = torch.export.load({str(path)!r}).module()
x = torch.arange(12.0).reshape(4, 3).t()
assert torch.equal(program(x), x.flatten() * 2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@STRICT
@pytest.mark.parametrize("mode", ["raise", "warn"])
def test_raise_and_warn_refuse(strict, mode):
    with pytest.raises(UsageError) as caught:
        export(flatten(x="contiguous", mode=mode), strict)
    lines = str(caught.value).splitlines()
    assert lines[0] == f'`flat` can\'t be exported or traced with mode="{mode}".'
    assert 'mode="convert" or export="check"' in lines[2]
    assert len(lines) == 3


@STRICT
def test_an_opaque_check_stays_and_raises_when_the_program_runs(strict, tmp_path):
    program = export(flatten(x="contiguous", export="check"), strict)
    torch.export.save(program, tmp_path / "program.pt2")
    for each in (program, program.run_decompositions(), torch.export.load(tmp_path / "program.pt2")):
        assert "stridewise.check_layout.default" in targets(each)
        assert torch.equal(each.module()(GOOD), GOOD.flatten() * 2)
        with pytest.raises(ContractError, match="`flat` needs `x` to be contiguous"):
            each.module()(BAD)


@STRICT
def test_a_layout_that_breaks_the_contract_as_an_example(strict):
    program = export(flatten(x="contiguous", mode="convert"), strict, BAD)
    assert torch.equal(program.module()(GOOD), GOOD.flatten() * 2)
    assert torch.equal(program.module()(BAD), BAD.flatten() * 2)


@STRICT
def test_dynamic_shapes(strict):
    @expect_layout(x="contiguous", mode="convert")
    def flat(x):
        return x.view(-1) * 2

    rows = torch.export.Dim("rows", min=2, max=20)
    program = torch.export.export(Runs(flat), (GOOD,), dynamic_shapes=({0: rows},), strict=strict)
    for x in (torch.randn(5, 4), torch.randn(4, 7).t()):
        assert torch.equal(program.module()(x), x.flatten() * 2)


@STRICT
def test_kinds_that_have_no_operator_are_refused(strict):
    alike = expect_layout(w=same_as("x"), mode="convert")(lambda x, w: x * w)
    for model in (Runs(expect_layout(x=lambda tensor: True)(lambda x: x * 2)), Runs(lambda x: alike(x, x))):
        with pytest.raises(UsageError, match="can't be exported or traced with its contract"):
            export(model, strict)


@STRICT
def test_what_the_function_writes_is_written_by_the_program(strict):
    @expect_layout(x="contiguous", mode="convert")
    def add_one(x):
        x.add_(1)
        return x * 1

    program = export(Runs(add_one), strict)
    for x in (torch.zeros(3, 4), torch.zeros(4, 3).t()):
        assert program.module()(x).unique().tolist() == [1]
        assert x.unique().tolist() == [1]


@STRICT
def test_an_autograd_function_and_a_module(strict):
    @expect_layout(x="contiguous", mode="convert")
    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.as_strided((12,), (1,)) * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.reshape(3, 4) * 2

    @expect_layout(x="contiguous", mode="convert")
    class Module(nn.Module):
        def forward(self, x):
            return x.as_strided((12,), (1,)) * 2

    warnings.filterwarnings("ignore", ".*should not be instantiated", DeprecationWarning)  # Dynamo does it
    for model in (Runs(lambda x: Flat.apply(x)), Module()):
        program = export(model, strict)
        assert torch.equal(program.module()(BAD), BAD.flatten() * 2)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_a_package_of_aot_inductor(tmp_path):
    if not hasattr(torch._inductor, "aoti_compile_and_package"):
        pytest.skip("this torch makes no packages")
    program = export(flatten(x="contiguous", mode="convert"), False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "flat.pt2"))
    model = torch._inductor.aoti_load_package(path)
    for x in (GOOD, BAD):
        assert torch.equal(model(x), x.flatten() * 2)


def test_jit_trace():
    converting, raising = flatten(x="contiguous", mode="convert"), flatten(x="contiguous")
    traced = torch.jit.trace(converting, (GOOD,))
    assert torch.equal(traced(BAD), BAD.flatten() * 2)
    for model in (raising, flatten(x="contiguous", export="check"), flatten(x="contiguous", mode="warn")):
        with pytest.raises(UsageError, match="can't be exported or traced"):
            torch.jit.trace(model, (GOOD,))
    with pytest.raises(UsageError, match="can't be exported or traced"):
        torch.jit.trace(raising, (BAD,))


def test_symbolic_trace_and_make_fx():
    converting, raising = flatten(x="contiguous", mode="convert"), flatten(x="contiguous")
    for trace in (torch.fx.symbolic_trace, lambda model: make_fx(model)(GOOD)):
        graph = trace(converting)
        assert torch.equal(graph(BAD), BAD.flatten() * 2)
        with pytest.raises(UsageError, match="can't be exported or traced"):
            trace(raising)
    with pytest.raises(UsageError):
        make_fx(raising, tracing_mode="fake")(GOOD)


def test_what_is_written_to_a_copy_in_a_graph_of_fx_is_not_lost():
    @expect_layout(x="contiguous", mode="convert")
    def add_one(x):
        x.add_(1)
        return x

    for trace in (torch.fx.symbolic_trace, lambda model: make_fx(model)(GOOD.clone())):
        graph = trace(Runs(add_one))
        for x in (torch.zeros(3, 4), torch.zeros(4, 3).t()):
            assert graph(x).unique().tolist() == [1]
            assert x.unique().tolist() == [1]
    traced = torch.jit.trace(Runs(add_one), (GOOD.clone(),))
    x = torch.zeros(4, 3).t()
    traced(x)
    assert x.unique().tolist() == [1]


@expect_layout(x="contiguous")
def double(x):
    return x * 2


class CallsDouble(nn.Module):
    def forward(self, x):
        return double(x)


@expect_layout(x="contiguous")
class Doubles(nn.Module):
    def forward(self, x):
        return x * 2


@pytest.mark.parametrize("model", [CallsDouble, Doubles])
def test_a_scripted_program_keeps_the_contract(model):
    scripted = torch.jit.script(model())
    assert torch.equal(scripted(GOOD), GOOD * 2)
    with pytest.raises(Exception, match="needs `x` to be contiguous"):
        scripted(BAD)


def test_the_operators_pass_torchs_own_check():
    from torch.library import opcheck

    lay_out = torch.ops.stridewise.lay_out.default
    for x in (GOOD, BAD, torch.randn(3, 8)[:, ::2], torch.randn(3, 4, requires_grad=True)):
        for kind in ("contiguous", "dense", "last_stride_1"):
            opcheck(lay_out, (x, None, kind, "convert", "f", "x"))
    opcheck(lay_out, (torch.randn(2, 3, 4, 5), None, "channels_last", "convert", "f", "x"))
    opcheck(torch.ops.stridewise.check_layout.default, (GOOD, None, "contiguous", "raise", "f", "x"))
