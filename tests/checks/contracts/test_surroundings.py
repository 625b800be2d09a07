"""Contracts beside what else torch and Python do: transforms, autocast, modes, `python -O`, other processes."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import stridewise
from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError

GOOD = torch.arange(12.0).reshape(3, 4)
BAD = torch.arange(12.0).reshape(4, 3).t()


def held(**options):
    return expect_layout(**options)(lambda x: x * 2)


@pytest.mark.parametrize("flag", ["-O", "-OO"])
def test_an_optimizing_python_keeps_it(flag):
    code = """
import torch
from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError

@expect_layout(x="contiguous")
def function(x):
    "Documented."
    return x

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
Function = expect_layout(x="contiguous", grads="contiguous")(Function)

x = torch.randn(3, 4, requires_grad=True)
caught = 0
for call in (lambda: function(x.t()), lambda: Function.apply(x.t()), lambda: Function.apply(x).sum().backward()):
    try:
        call()
    except ContractError as error:
        caught += error.finding.code == "SW408"
assert False or caught == 3
raise SystemExit(caught != 3)
"""
    subprocess.run([sys.executable, flag, "-c", code], check=True, timeout=100)


def test_vmap():
    x = torch.randn(5, 3, 4)
    for kind in ("contiguous", "dense", "last_stride_1"):
        assert torch.equal(torch.vmap(held(x=kind))(x), x * 2)
        with pytest.raises(ContractError):
            torch.vmap(held(x=kind))(x[..., ::2].mT)
        converting = held(x=kind, mode="convert")
        assert torch.equal(torch.vmap(lambda x, held=converting: held(x.mT))(x), x.mT * 2)
    images = torch.randn(2, 3, 4, 5, 6)
    assert torch.equal(torch.vmap(held(x="channels_last", mode="convert"))(images), images * 2)
    with pytest.raises(ContractError):
        torch.vmap(held(x="channels_last"))(images)
    compiled = torch.compile(torch.vmap(held(x="contiguous", mode="convert")), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x.mT), x.mT * 2)


def test_func_grad_jvp_and_hessian():
    function = held(x="contiguous", mode="convert")

    def loss(x):
        return function(x.t()).square().sum()

    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.allclose(torch.func.grad(loss)(x), 8 * x)
    value, change = torch.func.jvp(loss, (x,), (torch.ones_like(x),))
    assert torch.allclose(change, (8 * x).sum())
    assert value.shape == ()
    assert torch.allclose(torch.func.hessian(loss)(x).reshape(12, 12), 8 * torch.eye(12, dtype=torch.float64))
    with pytest.raises(ContractError):
        torch.func.grad(lambda x: held(x="contiguous")(x.t()).sum())(x)


def test_autocast_inference_mode_and_no_grad():
    linear = nn.Linear(4, 4)
    function = expect_layout(x="contiguous", mode="convert")(lambda x: linear(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert function(BAD).dtype == torch.bfloat16
    with torch.inference_mode():
        assert function(BAD).is_inference()
        with pytest.raises(ContractError):
            held(x="contiguous")(BAD)
    with torch.no_grad():
        assert not function(BAD).requires_grad


def test_modes_of_torch():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False), torch.device("cpu"):
        assert held(x="contiguous")(GOOD) is not None
        with pytest.raises(ContractError):
            held(x="contiguous")(BAD)


def test_gradient_checkpointing():
    from torch.utils.checkpoint import checkpoint

    function = held(x="contiguous", mode="convert", grads="contiguous")
    x = torch.randn(3, 4, requires_grad=True)
    checkpoint(lambda x: function(x.t()).sin(), x, use_reentrant=False).sum().backward()
    assert torch.allclose(x.grad, 2 * (2 * x).cos())


def test_a_recording_sees_a_conversion_as_a_copy_of_the_caller():
    function = held(x="contiguous", mode="convert")
    with stridewise.record() as recording:
        function(BAD)
    report = stridewise.analyze(recording)
    assert [copy.site.expression for copy in report.copies] == ["function(BAD)"]


def test_data_parallel_processes(tmp_path):
    """Two ranks under DDP: a contract on gradients and arguments holds in both, and results are as without it."""
    path = tmp_path / "ranks.py"
    path.write_text(
        """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from stridewise.checks.contracts import expect_layout

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)

@expect_layout(x="contiguous", grads="contiguous", mode="convert")
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.weight

model = DistributedDataParallel(Scale())
x = torch.arange(6.0).reshape(3, 2).t() * (rank + 1)
model(x).sum().backward()
assert torch.equal(model.module.weight.grad, torch.tensor([1.0, 5.0, 9.0]) * 1.5), model.module.weight.grad
dist.destroy_process_group()
"""
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(path), str(rank), str(tmp_path / "store")], env=environment)
        for rank in range(2)
    ]
    assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
