"""A C++ extension and custom operators: what runs in them belongs to the module and to the nearest call."""

import shutil

import pytest
import torch
from torch import nn
from torch.library import custom_op

import stridewise
from stridewise.recording.handle import Recording

SOURCE = """
torch::Tensor pack(torch::Tensor x) { return x.t().contiguous(); }
"""


def calls(recording: Recording) -> list[str]:
    log = recording.trace.log
    assert log is not None
    log.check()
    return [log.functions[call.function] for call in log.calls]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(300)
def test_a_c_plus_plus_extension(tmp_path, monkeypatch):
    from torch.utils.cpp_extension import load_inline

    monkeypatch.setenv("MAX_JOBS", "1")
    extension = load_inline(
        "stridewise_test_pack", cpp_sources=SOURCE, functions=["pack"], build_directory=str(tmp_path), verbose=False
    )

    class Packs(nn.Module):
        def forward(self, x):
            y = x.sin()
            return extension.pack(y)

    model, x = nn.Sequential(Packs()), torch.randn(200, 300)
    before = model(x)
    with stridewise.record() as recording:
        during = model(x)
    assert torch.equal(during, before)
    trace = recording.trace
    assert calls(recording) == ["torch.Tensor.sin"]
    (copy,) = [op for op in trace.ops if op.name == "aten::copy_"]
    assert copy.call == -1
    assert trace.module_path(copy.module_call) == "0"
    (row,) = stridewise.analyze(recording).copies
    assert row.inferred
    assert row.site.module == "0"
    assert row.site.expression == "x.sin()"


def test_a_custom_operator_is_one_call():
    @custom_op("stridewise_test::pack", mutates_args=())
    def pack(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous()

    @pack.register_fake
    def _(x):
        return x.new_empty(x.shape[1], x.shape[0])

    pack.register_autograd(lambda ctx, g: g.t())

    class Packs(nn.Module):
        def forward(self, x):
            return pack(x) + torch.ops.stridewise_test.pack(x)

    model, x = nn.Sequential(Packs()), torch.randn(4, 5, requires_grad=True)
    model(x).square().sum().backward()
    before, x.grad = x.grad, None
    with stridewise.record() as recording:
        model(x).square().sum().backward()
    assert torch.equal(x.grad, before)
    trace, names = recording.trace, calls(recording)
    custom = [index for index, name in enumerate(names) if name.startswith("torch.ops.stridewise_test.pack")]
    assert [trace.site(index).expression for index in custom] == ["pack(x)", "torch.ops.stridewise_test.pack(x)"]
    copies = [op for op in trace.ops if op.name == "aten::copy_" and op.node < 0]
    assert {op.call for op in copies} == set(custom)
    assert {trace.module_path(op.module_call) for op in copies} == {"0"}


def test_a_function_of_the_programs_own():
    class Packs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.t().contiguous()

        @staticmethod
        def backward(ctx, g):
            return g.t().contiguous()

    class Model(nn.Module):
        def forward(self, x):
            return Packs.apply(x)

    model, x = nn.Sequential(Model()), torch.randn(4, 5, requires_grad=True)
    with stridewise.record() as recording:
        model(x).square().sum().backward()
    trace = recording.trace
    names = calls(recording)
    packing = {index for index, name in enumerate(names) if name == "torch.Tensor.contiguous"}
    copies = [op for op in trace.ops if op.name == "aten::copy_" and op.call in packing]
    forward, backward = sorted(copies, key=lambda op: op.start_ns)
    assert trace.site(forward.call).expression == "x.t().contiguous()"
    assert trace.module_path(forward.module_call) == "0"
    assert trace.site(backward.call).expression == "g.t().contiguous()"
    assert backward.node >= 0
