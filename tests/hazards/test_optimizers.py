"""Optimizers and wrappers that take strides for granted. Each fault happens in torch, is named, and is cured."""

import copy
import subprocess
import sys
import tempfile
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import stridewise

from .rows import hazard

LAST = torch.channels_last
FUSED = {
    "Adam": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1, fused=True),
}


@pytest.fixture(scope="module")
def alone():
    """A process group of one."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        yield dist.group.WORLD
        dist.destroy_process_group()


def codes(**parts) -> dict[str, str]:
    return {finding.code: finding.severity for finding in stridewise.preflight(**parts).findings}


@hazard(4, code="SW204")
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_overwrites_the_neighbours_of_a_slice(name):
    base = torch.zeros(4, 8)
    model = nn.Module()
    model.w = nn.Parameter(base[:, :4])
    optimizer = FUSED[name]([model.w])
    assert codes(model=model, optimizer=optimizer)["SW204"] == "error"
    model.w.grad = torch.ones(4, 4)
    optimizer.step()
    assert base[:, 4:].abs().sum() > 0  # not the parameter's

    base = torch.zeros(4, 8)
    model.w = nn.Parameter(base[:, :4])
    model.w.data = model.w.data.clone()
    optimizer = FUSED[name]([model.w])
    assert codes(model=model, optimizer=optimizer) == {}
    model.w.grad = torch.ones(4, 4)
    optimizer.step()
    assert base.abs().sum() == 0


@hazard(4, code="SW204")
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_pairs_elements_wrongly_after_a_change_of_format(name):
    torch.manual_seed(0)
    fused, sound = nn.Conv2d(3, 4, 3), None
    sound = copy.deepcopy(fused)
    optimizers = FUSED[name](fused.parameters()), FUSED[name](sound.parameters())
    for model, optimizer in zip((fused, sound), optimizers, strict=True):
        for step in range(2):
            for p in model.parameters():
                p.grad = torch.linspace(-1, 1, p.numel()).reshape(p.shape) * (step + 1)
                if model is fused and step:
                    p.data = p.data.contiguous(memory_format=LAST) if p.dim() == 4 else p.data
                    p.grad = p.grad.contiguous(memory_format=LAST) if p.dim() == 4 else p.grad
            if model is fused and step:
                assert codes(model=model, optimizer=optimizer)["SW204"] == "error"
            optimizer.step()
    assert not torch.allclose(fused.weight, sound.weight, atol=1e-4)


@hazard(4, code="SW204")
def test_a_fused_step_on_an_expanded_parameter_damages_the_heap():
    model = nn.Module()
    model.w = nn.Parameter(torch.arange(3.0).expand(400, 3))
    optimizer = torch.optim.SGD([model.w], 0.1, fused=True)
    found = codes(model=model, optimizer=optimizer)
    assert found["SW204"] == "error"
    assert found["SW206"] == "error"
    code = """
import ctypes, torch
room = torch.full((5000,), 7.0)
p = torch.nn.Parameter(room[2000:2003].expand(400, 3))
p.grad = torch.ones(400, 3)
torch.optim.SGD([p], 0.1, fused=True).step()
print(int((room[2003:] != 7).sum()))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0 or int(ran.stdout) > 0


def test_state_of_another_format_slows_steps_and_keeps_them_right():
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    model.to(memory_format=LAST)
    assert codes(model=model, optimizer=optimizer)["SW224"] == "note"


@hazard(69, code="SW204")
def test_a_gradient_that_was_assigned_lies_otherwise():
    """Only `backward` gives a gradient its parameter's strides; `autograd.grad` gives what comes."""
    w = nn.Parameter(torch.randn(4, 3))
    (gradient,) = torch.autograd.grad((w.t() * torch.randn(3, 4)).sum(), w)
    assert gradient.stride() != w.stride()
    model = nn.Module()
    model.w = w
    w.grad = gradient
    optimizer = torch.optim.SGD([w], 0.1, fused=True)
    assert codes(model=model, optimizer=optimizer)["SW204"] == "error"
    w.grad = gradient.contiguous()
    assert codes(model=model, optimizer=optimizer) == {}


class Permuted(nn.Module):
    """A 1x1 or depthwise convolution of images that come as NHWC."""

    def __init__(self, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.c = nn.Conv2d(8, 8, kernel, groups=groups, padding=kernel // 2)

    def forward(self, x):
        return self.c(x.permute(0, 3, 1, 2))


def warned(model: nn.Module, x: torch.Tensor) -> bool:
    """Whether DistributedDataParallel warns of strides."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            model(x).square().sum().backward()
        finally:
            torch.set_warn_always(False)
    return any("strides" in str(warning.message) for warning in caught)


@hazard(66, 67, code="SW219")
@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (5, 8)], ids=["1x1", "depthwise"])
def test_ddp_warns_of_strides_that_do_no_harm(alone, kernel, groups):
    model = nn.parallel.DistributedDataParallel(Permuted(kernel, groups))
    x = torch.randn(2, 6, 6, 8)
    assert codes(model=model, sample=(x,))["SW219"] == "note"
    assert warned(model, x)
    inner = Permuted(kernel, groups).to(memory_format=LAST)
    cured = nn.parallel.DistributedDataParallel(inner)
    assert "SW219" not in codes(model=cured, sample=(x,))
    assert not warned(cured, x)


@hazard(68, code=None)
def test_small_weights_and_sliced_embeddings_are_healed(alone):
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Parameter(torch.randn(1, 16, 8))

        def forward(self, x):
            return x + self.positions[:, : x.shape[1]]

    for model, x in ((nn.Linear(64, 1), torch.randn(4, 64)), (Embedded(), torch.randn(2, 9, 8))):
        wrapped = nn.parallel.DistributedDataParallel(model)
        assert not warned(wrapped, x)
        assert "SW219" not in codes(model=wrapped, sample=(x,))


@hazard(70, code=None)
def test_gradients_whose_size_1_strides_differ_do_no_harm_on_the_cpu():
    """CUDA's fused kernels refuse them, reports say; the CPU's are right."""
    one, other = (nn.Parameter(torch.arange(6.0).reshape(2, 3, 1)) for _ in range(2))
    one.grad = torch.ones(6).as_strided((2, 3, 1), (3, 1, 7))
    other.grad = torch.ones(2, 3, 1)
    for p in (one, other):
        torch.optim.Adam([p], 0.1, fused=True).step()
    assert torch.equal(one, other)
    model = nn.Module()
    model.w = one
    assert codes(model=model, optimizer=torch.optim.Adam([one], fused=True)) == {}


@hazard(71, code="SW220")
def test_fsdp2_refuses_channels_last(alone):
    from torch.distributed.fsdp import fully_shard

    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    assert codes(model=model, process_group=alone)["SW220"] == "note"
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    with pytest.raises(NotImplementedError, match="non-contiguous"):
        fully_shard(model, mesh=mesh)
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    for p in model.parameters():
        p.data = p.data.contiguous()
    assert "SW220" not in codes(model=model, process_group=alone)
    fully_shard(model, mesh=mesh)
