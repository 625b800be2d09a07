"""`preflight` as a whole: whatever it is given it says what it saw, and leaves all of it as it was."""

import copy
import random
import tempfile
import warnings
from typing import ClassVar

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stridewise
from stridewise.checks.preflight import preflight
from stridewise.checks.preflight.load import load_subject
from stridewise.errors import UsageError

LAST = torch.channels_last
X = torch.randn(3, 4)


@pytest.fixture(scope="module", autouse=True)
def alone():
    """A process group of one."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        yield dist.group.WORLD
        dist.destroy_process_group()


class Times(nn.Module):
    """A parameter and one product."""

    def __init__(self, weight, requires_grad=True):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=requires_grad)

    def forward(self, x):
        return x @ self.weight


class Own(torch.Tensor):
    """A subclass that keeps torch's behaviour."""


class Strange(nn.Module):
    """A module whose attributes raise."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name):
        if name not in ("inner", "_compiled_call_impl"):
            raise RuntimeError(f"no {name}")
        return super().__getattr__(name)

    def forward(self, x):
        return self.inner(x)


class Careless(nn.Module):
    """A module that changes what it can reach when it is called."""

    seen: ClassVar[list[int]] = []
    memory: ClassVar[dict[str, torch.Tensor]] = {}

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.memory["last"] = x
        x.mul_(2)
        random.random()
        numpy.random.rand()
        with torch.no_grad():
            self.inner.weight.add_(1)
        if self.calls == 1:
            self.inner.register_forward_hook(lambda *_: None)
            self.extra = nn.Linear(1, 1)
        return nn.functional.dropout(self.norm(self.inner(x)))


def on_meta():
    with torch.device("meta"):
        return nn.Sequential(nn.Conv2d(3, 3, 3), nn.Linear(4, 4)).to(memory_format=LAST)


def huge():
    with torch.device("meta"):
        return nn.Linear(300_000, 300_000)


def ragged():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def distributed_tensor():
    from torch.distributed.tensor import Replicate, distribute_tensor

    model = nn.Linear(4, 4)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    for name, p in list(model.named_parameters()):
        setattr(model, name, nn.Parameter(distribute_tensor(p.detach(), mesh, [Replicate()])))
    return model


def sharded():
    from torch.distributed.fsdp import fully_shard

    return fully_shard(nn.Sequential(nn.Linear(4, 4)), mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))


def with_method_compiled():
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].compile()
    return model


def in_inference_mode():
    with torch.inference_mode():
        return nn.Linear(4, 4)


def untied_buffer():
    model = nn.Linear(4, 4)
    model.register_buffer("view", model.weight.detach()[:, :2])
    model.register_buffer("computed", model.weight * 2)
    return model


ODD = {
    "empty": (nn.Module, None),
    "without parameters": (nn.Identity, X),
    "no elements": (lambda: nn.Linear(0, 4), torch.zeros(3, 0)),
    "careless": (Careless, X),
    "strange": (Strange, X),
    "frozen": (lambda: nn.Linear(4, 4).requires_grad_(False), X),
    "half": (lambda: nn.Linear(4, 4).half(), X.half()),
    "float8": (lambda: Times(torch.zeros(4, 4).to(torch.float8_e4m3fn), False), X),
    "complex": (lambda: Times(torch.randn(4, 4, dtype=torch.complex64)), X.to(torch.complex64)),
    "conjugate": (lambda: Times(torch.randn(4, 4, dtype=torch.complex64).conj()), X.to(torch.complex64)),
    "expanded": (lambda: Times(torch.randn(4).expand(4, 4)), X),
    "sparse": (lambda: Times(torch.eye(4).to_sparse()), X),
    "sparse rows": (lambda: Times(torch.eye(4).to_sparse_csr()), X),
    "sparse gradients": (lambda: nn.Embedding(5, 4, sparse=True), torch.arange(3)),
    "nested": (lambda: Times(ragged()), None),
    "subclass": (lambda: Times(Own(torch.randn(4, 4))), X),
    "distributed tensor": (distributed_tensor, None),
    "sharded": (sharded, X),
    "data parallel": (lambda: nn.DataParallel(nn.Linear(4, 4)), X),
    "wrapped": (lambda: DistributedDataParallel(nn.Linear(4, 4)), X),
    "wrapped inside": (lambda: nn.Sequential(DistributedDataParallel(nn.Linear(4, 4))), X),
    "wrapped and compiled": (lambda: torch.compile(DistributedDataParallel(nn.Linear(4, 4))), X),
    "compiled": (lambda: torch.compile(nn.Linear(4, 4)), X),
    "compiled in part": (with_method_compiled, X),
    "meta": (on_meta, X),
    "huge": (huge, X),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()), X),
    "quantised": (lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4))), X),
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4))), X),
    "traced": (lambda: torch.jit.trace(nn.Linear(4, 4), X), X),
    "symbolic": (lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))), X),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), X),
    "weight norm": (lambda: nn.utils.weight_norm(nn.Linear(4, 4)), X),
    "made in inference mode": (in_inference_mode, X),
    "buffers that are views": (untied_buffer, X),
    "lstm": (lambda: nn.LSTM(4, 4), X),
}


def everything(model, sample, optimizers) -> list:
    """All that a check could have changed."""
    modules = list(model.modules())
    tensors = [t for module in modules for t in (*module._parameters.values(), *module._buffers.values())]
    return [
        [(id(module), module.training, {key: id(value) for key, value in vars(module).items()}) for module in modules],
        [
            {key: [*value, *map(id, value.values())] for key, value in vars(module).items() if isinstance(value, dict)}
            for module in modules
        ],
        [(id(t), None if t is None or nn.parameter.is_lazy(t) else of_tensor(t)) for t in tensors],
        [of_tensor(t) for t in ([sample] if isinstance(sample, torch.Tensor) else [])],
        [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers],
        [torch.get_rng_state(), random.getstate(), numpy.random.get_state()],
        [list(Careless.seen), dict(Careless.memory)],
        [len(nn.modules.module._global_forward_pre_hooks), torch.is_grad_enabled(), torch.get_default_dtype()],
    ]


def of_tensor(tensor) -> tuple:
    plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested
    grad = tensor.grad if tensor.is_leaf else None
    if not plain:
        return (str(tensor.layout), id(grad))
    values = None if tensor.is_meta else tensor.detach().clone()
    return (
        values,
        tensor.stride(),
        tensor.storage_offset(),
        tensor._version if not tensor.is_inference() else 0,
        id(grad),
    )


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and repr(one.tolist()) == repr(other.tolist())  # nan is nan
    if isinstance(one, numpy.ndarray):
        return numpy.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


@pytest.mark.parametrize("name", ODD)
def test_it_never_fails_on_a_model_and_leaves_all_as_it_was(name):
    make, sample = ODD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
    sample = sample.clone() if sample is not None else None
    optimizers = [torch.optim.SGD(list(model.parameters()), 0.1)] if list(model.parameters()) else []
    before = everything(model, sample, optimizers)
    result = stridewise.preflight(model, optimizers, sample=sample)
    assert same(everything(model, sample, optimizers), before)
    looked = " ".join(row.what for row in result.looked)
    assert "parameter" in looked
    is_trained = any(p.requires_grad for p in model.parameters())
    said = any("not looked at" in note for note in result.notes)
    assert said or not is_trained or "and its backward" in looked  # never silently left out


def test_errors_come_first_then_warnings_then_notes():
    model = nn.ModuleDict({"a": nn.Conv2d(3, 4, 3).to(memory_format=LAST), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4)})
    model["b"].weight = nn.Parameter(torch.randn(4, 8)[:, :4])
    model["c"].weight = nn.Parameter(torch.randn(4).expand(4, 4))
    found = stridewise.preflight(model, torch.optim.AdamW(model.parameters(), fused=True)).findings
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, key=("error", "warning", "note").index)
    assert set(severities) == {"error", "warning", "note"}
    for severity in set(severities):
        codes = [finding.code for finding in found if finding.severity == severity]
        assert codes == sorted(codes)


def test_notes_alone_are_fine():
    result = stridewise.preflight(nn.Conv2d(3, 4, 3).to(memory_format=LAST))
    assert {finding.severity for finding in result.findings} == {"note"}
    assert result.ok


def test_only_what_is_asked_for():
    model = nn.Linear(4, 8)
    model.weight = nn.Parameter(torch.randn(8, 8)[:, ::2])
    parts = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), fused=True)}
    assert {f.code for f in stridewise.preflight(**parts, select=["SW204"]).findings} == {"SW204"}
    assert "SW204" not in {f.code for f in stridewise.preflight(**parts, ignore=["SW204"]).findings}


def test_what_was_looked_at():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=LAST)
    images = torch.randn(2, 3, 8, 8).to(memory_format=LAST)
    loader = torch.utils.data.DataLoader([torch.zeros(3, 8, 8)] * 4, batch_size=2)
    result = stridewise.preflight(
        model, torch.optim.AdamW(model.parameters(), fused=True), loader, dist.group.WORLD, (images,)
    )
    assert [(row.what, row.verdict) for row in result.looked] == [
        ("4 parameters and 3 buffers", "6 contiguous, 1 channels_last"),
        ("AdamW, fused", "fits the parameters"),
        ("the sample and its backward", "channels_last"),
        ("the ranks' parameters and buffers", "equal strides"),
        ("DataLoader, 2 batches", "nothing to find"),
    ]
    assert [field.path for field in result.fields] == ["batch"]
    assert result.notes == ()


def test_what_a_loader_has_is_among_the_findings():
    images = torch.utils.data.DataLoader([torch.zeros(8, 8, 3).permute(2, 0, 1) for _ in range(4)], batch_size=2)
    result = stridewise.preflight(loader=images)
    assert "SW216" in {finding.code for finding in result.findings}
    assert result.looked[-1].verdict == "1 finding"


def test_without_a_sample_it_says_that_gradients_were_not_looked_at():
    assert stridewise.preflight(nn.Linear(2, 2)).notes == ("No sample was given: gradients were not looked at.",)
    assert stridewise.preflight(nn.Linear(2, 2), sample=(torch.ones(2, 2),)).notes == ()


def test_what_the_model_raises_comes_through():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        stridewise.preflight(nn.Linear(2, 2), sample=(torch.ones(2, 3),))


def test_compiled_models_are_not_compiled_for_it():
    compiled = torch.compile(nn.Linear(4, 4), backend=pytest.fail)
    result = stridewise.preflight(compiled, sample=(X,))
    assert result.notes == ("Gradients were looked at without `torch.compile`.",)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "preflight() was given nothing to look at."),
        ({"model": nn.Linear}, "preflight() was given type as a model."),
        ({"optimizer": "adam"}, "preflight() was given str as an optimizer."),
        ({"model": nn.Linear(1, 1), "process_group": "gloo"}, "preflight() was given 'gloo' as process_group."),
    ],
    ids=["nothing", "class", "name", "backend"],
)
def test_mistakes(parts, message):
    with pytest.raises(UsageError) as raised:
        preflight(**parts)
    assert raised.value.given == message


TARGETS = """
import torch
from torch import nn

def a_model(): return nn.Linear(4, 4)
def with_a_sample(): return nn.Linear(4, 4), torch.ones(2, 4)
def with_several(): return nn.Bilinear(4, 4, 2), torch.ones(2, 4), torch.ones(2, 4)
def with_names(): return nn.Linear(4, 4), {"input": torch.ones(2, 4)}
def a_dict(): return {"model": nn.Linear(4, 4), "loss": torch.sum, "sample": torch.ones(2, 4)}
def with_an_optimizer():
    model = nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters())
def a_number(): return 3
def a_typo(): return {"optimiser": None}
"""


@pytest.fixture
def targets(tmp_path):
    path = tmp_path / "targets_of_test.py"
    path.write_text(TARGETS)
    return path


@pytest.mark.parametrize("name", ["a_model", "with_a_sample", "with_several", "with_names", "a_dict"])
def test_what_a_target_may_return(targets, name):
    parts = load_subject(f"{targets}:{name}")
    assert preflight(**parts).findings == ()
    assert ("sample" in parts) == (name != "a_model")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("with_an_optimizer", "a tuple with SGD in it"),
        ("a_number", "returned int"),
        ("a_typo", "a dict with `optimiser` in it"),
    ],
    ids=lambda value: value.split()[0],
)
def test_what_it_may_not(targets, name, said):
    with pytest.raises(UsageError) as raised:
        load_subject(f"{targets}:{name}")
    assert said in raised.value.given
    assert "model" in str(raised.value.expected)
