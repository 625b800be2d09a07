"""Optimizers and wrappers that take strides for granted. Each fault happens in torch, is named, and is cured."""

import subprocess
import sys
import tempfile
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stridewise

from .rows import hazard

LAST = torch.channels_last
FUSED = {
    "Adam": lambda p, fused: torch.optim.Adam(p, 0.1, fused=fused),
    "AdamW": lambda p, fused: torch.optim.AdamW(p, 0.1, fused=fused),
    "SGD": lambda p, fused: torch.optim.SGD(p, 0.1, momentum=0.9, fused=fused),
    "Adagrad": lambda p, fused: torch.optim.Adagrad(p, 0.1, fused=fused),
}


@pytest.fixture(scope="module")
def alone():
    """A process group of one."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        yield dist.group.WORLD
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _threads():
    """Which kernel a small convolution takes, and with it its gradient's strides, goes by the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def codes(**parts) -> dict[str, str]:
    return {finding.code: finding.severity for finding in stridewise.preflight(**parts).findings}


@hazard(4, code="SW204")
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_overwrites_the_neighbours_of_a_slice(name):
    """It writes as many elements as the parameter has, one behind the other, into the matrix that it is a part of."""
    base = torch.zeros(4, 8)
    model = nn.Module()
    model.w = nn.Parameter(base[:, :4])
    optimizer = FUSED[name]([model.w], True)
    assert codes(model=model, optimizer=optimizer)["SW204"] == "error"
    model.w.grad = torch.ones(4, 4)
    optimizer.step()
    assert base[:, 4:].abs().sum() > 0  # not the parameter's

    base = torch.zeros(4, 8)
    model.w = nn.Parameter(base[:, :4])
    model.w.data = model.w.data.clone()
    optimizer = FUSED[name]([model.w], True)
    assert codes(model=model, optimizer=optimizer) == {}
    model.w.grad = torch.ones(4, 4)
    optimizer.step()
    assert base.abs().sum() == 0
    assert (model.w < 0).all()


def converted_between_steps(name: str, *, fused: bool, convert_state: bool) -> tuple[torch.Tensor, dict[str, str]]:
    """A weight after two steps with a change of format in between, and what was said before the second."""
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3)
    optimizer = FUSED[name](model.parameters(), fused)
    images = torch.randn(2, 3, 8, 8)
    model(images).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.to(memory_format=LAST)
    if convert_state:
        for p, state in optimizer.state.items():
            for key, value in state.items():
                if value.shape == p.shape:
                    state[key] = torch.empty_like(p).copy_(value)
    said = codes(model=model, optimizer=optimizer)
    model(images).square().sum().backward()
    optimizer.step()
    return model.weight.detach(), said


@hazard(4, code="SW204")
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_pairs_elements_wrongly_after_a_change_of_format(name):
    """The state that the first step made keeps the strides that the weight had then."""
    right, said = converted_between_steps(name, fused=False, convert_state=False)
    assert "SW204" not in said
    assert said["SW224"] == "note"
    wrong, said = converted_between_steps(name, fused=True, convert_state=False)
    assert said["SW204"] == "error"
    assert not torch.allclose(wrong, right, atol=1e-4)
    cured, said = converted_between_steps(name, fused=True, convert_state=True)
    assert not {"SW204", "SW224"} & set(said)
    torch.testing.assert_close(cured, right, atol=1e-4, rtol=1e-4)


BESIDE = """
import torch
room = torch.full((5000,), 7.0)
p = torch.nn.Parameter(room[2000:2003].expand(400, 3))
{cure}
p.grad = torch.ones(400, 3)
torch.optim.SGD([p], 0.1, fused=True).step()
print(int((room[2003:] != 7).sum()))
"""


@hazard(4, code="SW204")
def test_a_fused_step_on_an_expanded_parameter_writes_past_it():
    """Three numbers are stepped as if they were 1200; without room behind them that damages the heap."""
    model = nn.Module()
    model.w = nn.Parameter(torch.arange(3.0).expand(400, 3))
    found = codes(model=model, optimizer=torch.optim.SGD([model.w], 0.1, fused=True))
    assert found["SW204"] == "error"
    assert found["SW206"] == "error"
    model.w.data = model.w.data.clone()
    assert codes(model=model, optimizer=torch.optim.SGD([model.w], 0.1, fused=True)) == {}
    for cure, harmed in (("", 1197), ("p.data = p.data.clone()", 0)):
        code = BESIDE.format(cure=cure)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert int(ran.stdout) == harmed


@hazard(69, code="SW204")
def test_a_gradient_that_was_assigned_lies_otherwise():
    """Only `backward` gives a gradient its parameter's strides; `autograd.grad` gives what comes."""
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(4, 3))
    (gradient,) = torch.autograd.grad((model.w.t() * torch.arange(12.0).reshape(3, 4)).sum(), model.w)
    (model.w.t() * torch.arange(12.0).reshape(3, 4)).sum().backward()
    assert gradient.stride() != model.w.grad.stride() == model.w.stride()

    model.w.grad = gradient
    optimizer = torch.optim.SGD([model.w], 1.0, fused=True)
    assert codes(model=model, optimizer=optimizer)["SW204"] == "error"
    optimizer.step()
    assert not torch.equal(model.w, -gradient)

    model.w.data.zero_()
    model.w.grad = torch.empty_like(model.w).copy_(gradient)
    assert codes(model=model, optimizer=optimizer) == {}
    optimizer.step()
    assert torch.equal(model.w, -gradient)


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
    return any("do not match bucket view strides" in str(warning.message) for warning in caught)


@hazard(66, 67, code="SW219")
@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (5, 8)], ids=["1x1", "depthwise"])
def test_ddp_warns_of_strides_that_do_no_harm(alone, kernel, groups):
    """A weight of size 1 in a dimension has a gradient in channels_last, which is the same memory."""
    model = DistributedDataParallel(Permuted(kernel, groups))
    x = torch.randn(2, 6, 6, 8)
    assert codes(model=model, sample=(x,))["SW219"] == "note"
    assert warned(model, x)
    cures = (
        (Permuted(kernel, groups).to(memory_format=LAST), x),
        (Permuted(kernel, groups), x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)),
    )
    for inner, images in cures:
        cured = DistributedDataParallel(inner)
        assert "SW219" not in codes(model=cured, sample=(images,))
        assert not warned(cured, images)


@hazard(68, code=None)
def test_small_weights_and_sliced_embeddings_are_healed(alone):
    """A gradient of a linear layer to one number, or of a part of an embedding, comes in its parameter's strides."""

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Parameter(torch.randn(1, 16, 8))

        def forward(self, x):
            return x + self.positions[:, : x.shape[1]]

    for model, x in ((nn.Linear(64, 1), torch.randn(4, 64)), (Embedded(), torch.randn(2, 9, 8))):
        wrapped = DistributedDataParallel(model)
        assert not warned(wrapped, x)
        assert "SW219" not in codes(model=wrapped, sample=(x,))


@hazard(70, code=None)
@pytest.mark.parametrize("name", FUSED)
def test_gradients_whose_size_1_strides_differ_do_no_harm_on_the_cpu(name):
    """CUDA's fused kernels refused them until torch 2.5, by the reports; the CPU's are right."""
    one, other = (nn.Parameter(torch.arange(6.0).reshape(2, 3, 1)) for _ in range(2))
    one.grad = torch.ones(6).as_strided((2, 3, 1), (3, 1, 7))
    other.grad = torch.ones(2, 3, 1)
    model = nn.Module()
    model.w = one
    assert codes(model=model, optimizer=FUSED[name]([one], True)) == {}
    for p in (one, other):
        FUSED[name]([p], True).step()
    assert torch.equal(one, other)


@pytest.mark.needs_torch("2.7", "`fully_shard` runs on no CPU")
@hazard(71, code="SW220")
def test_fsdp2_refuses_channels_last(alone):
    """`fully_shard` takes contiguous parameters only; channels_last images are enough to run in channels_last."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    assert codes(model=model, process_group=alone)["SW220"] == "note"
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    with pytest.raises(NotImplementedError, match="non-contiguous"):
        fully_shard(model, mesh=mesh)

    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    for p in model.parameters():
        p.data = p.data.contiguous()
    assert codes(model=model, process_group=alone) == {}
    images = torch.randn(2, 3, 8, 8).to(memory_format=LAST)
    assert fully_shard(model, mesh=mesh)(images).is_contiguous(memory_format=LAST)
