"""SW219 and SW220: what DistributedDataParallel will warn of and FSDP refuse, said before they do."""

import tempfile
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stridewise
from stridewise.checks.rules import sw219, sw220
from stridewise.layout import Layout

from ..ranks.world import world

LAST = torch.channels_last


@pytest.fixture(scope="module", autouse=True)
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


class Calls(nn.Module):
    """A module, and a function that calls it."""

    def __init__(self, function, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def parameter(*sizes):
    return nn.Parameter(torch.randn(sizes))


def gapped(*sizes):
    return nn.Parameter(torch.randn(*sizes[:-1], 2 * sizes[-1])[..., : sizes[-1]])


def on_permuted(kernel, groups=1):
    conv = nn.Conv2d(8, 8, kernel, padding=kernel // 2, groups=groups)
    return Calls(lambda self, x: self.c(x.permute(0, 3, 1, 2)), c=conv)


IMAGE, TABLE = (2, 8, 6, 6), (2, 6, 6, 8)
MODELS = {
    "1x1": (lambda: nn.Conv2d(8, 8, 1), IMAGE),
    "1x1 of channels_last images": (lambda: nn.Conv2d(8, 8, 1), "last"),
    "1x1 in channels_last": (lambda: nn.Conv2d(8, 8, 1).to(memory_format=LAST), "last"),
    "1x1 of permuted images": (lambda: on_permuted(1), TABLE),
    "3x3 of channels_last images": (lambda: nn.Conv2d(8, 8, 3), "last"),
    "3x3 in channels_last of others": (lambda: nn.Conv2d(8, 8, 3).to(memory_format=LAST), IMAGE),
    "3x3 of permuted images": (lambda: on_permuted(3), TABLE),
    "depthwise of channels_last images": (lambda: nn.Conv2d(8, 8, 5, padding=2, groups=8), "last"),
    "depthwise in channels_last": (lambda: nn.Conv2d(8, 8, 5, groups=8).to(memory_format=LAST), "last"),
    "depthwise of permuted images": (lambda: on_permuted(5, 8), TABLE),
    "tokens to 1x1": (
        lambda: Calls(lambda self, x: self.c(x.transpose(1, 2).reshape(2, 8, 6, 6)), c=nn.Conv2d(8, 8, 1)),
        (2, 36, 8),
    ),
    "bmm of one row": (
        lambda: Calls(lambda self, x: torch.bmm(x.transpose(0, 1), self.w.transpose(1, 2)), w=parameter(2, 1, 100)),
        (10, 2, 100),
    ),
    "a weight on the right": (lambda: Calls(lambda self, x: x @ self.w, w=parameter(8, 5)), (4, 8)),
    "linear to one": (lambda: nn.Linear(64, 1), (4, 64)),
    "sliced positions": (lambda: Calls(lambda self, x: x + self.w[:, :9], w=parameter(1, 300, 98)), (2, 9, 98)),
    "positions of channels_last images": (lambda: Calls(lambda self, x: x + self.w, w=parameter(1, 8, 6, 6)), "last"),
    "a scale for each channel": (lambda: Calls(lambda self, x: x * self.w, w=parameter(8, 1, 1)), "last"),
    "transposed convolution": (lambda: nn.ConvTranspose2d(8, 4, 2, 2), "last"),
    "conv1d of transposed": (
        lambda: Calls(lambda self, x: self.c(x.transpose(1, 2)), c=nn.Conv1d(8, 8, 1)),
        (2, 9, 8),
    ),
    "a weight with gaps": (lambda: Calls(lambda self, x: x * self.w, w=gapped(4, 8)), (4, 8)),
}


def of(given):
    return torch.randn(IMAGE).to(memory_format=LAST) if given == "last" else torch.randn(given)


def warned(model, x):
    """Whether DistributedDataParallel warns of strides in a backward."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            model(x).square().sum().backward()
        finally:
            torch.set_warn_always(False)
    return any("do not match bucket view strides" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_said_exactly_where_torch_warns(name):
    make, given = MODELS[name]
    model, x = DistributedDataParallel(make()), of(given)
    said = [f.severity for f in stridewise.preflight(model, sample=(x,)).findings if f.code == "SW219"]
    assert (said == ["note"]) == warned(model, x)
    assert said in ([], ["note"])  # all of these differ in dimensions of size 1 only


def test_those_models_are_of_both_kinds():
    judged = [warned(DistributedDataParallel(make()), of(given)) for make, given in MODELS.values()]
    assert {True, False} == set(judged)


@pytest.mark.parametrize(
    "wrap", [lambda m: m, torch.compile, lambda m: nn.Sequential(m)], ids=["itself", "compiled", "inside"]
)
def test_the_cause_is_named_however_the_model_is_wrapped(wrap):
    model = wrap(DistributedDataParallel(on_permuted(1)))
    (found,) = [f for f in stridewise.preflight(model, sample=(torch.randn(TABLE),)).findings if f.code == "SW219"]
    assert found.site.expression.endswith("c.weight`")
    assert "got an input that is channels_last, (2, 8, 6, 6) with strides (288, 1, 48, 8)" in found.message


def test_the_gradients_that_it_calls_right_are_right():
    model = on_permuted(1)
    wrapped = DistributedDataParallel(model)
    x = torch.randn(TABLE)
    assert warned(wrapped, x)
    through = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(through, [p.grad for p in model.parameters()])


def test_a_gradient_in_another_order_is_a_warning_until_it_is_cleared():
    model = DistributedDataParallel(nn.Linear(4, 8))
    x = torch.randn(2, 4)
    weight = model.module.weight
    weight.grad = torch.zeros(4, 8).t()
    (found,) = stridewise.preflight(model, sample=(x,)).findings
    assert (found.code, found.severity) == ("SW219", "warning")
    assert warned(model, x)
    weight.grad = None
    assert stridewise.preflight(model, sample=(x,)).findings == ()
    assert not warned(model, x)


def test_one_process_is_told_nothing():
    x = torch.randn(TABLE)
    assert stridewise.preflight(on_permuted(1), sample=(x,)).findings == ()
    assert "SW219" in {
        f.code for f in stridewise.preflight(on_permuted(1), None, None, dist.group.WORLD, (x,)).findings
    }


def test_a_place_in_a_bucket_has_no_gaps():
    assert sw219.bucket_of(Layout((4, 3), (1, 4))).strides == (1, 4)
    assert sw219.bucket_of(Layout((4, 3), (8, 2), 5)).strides == (3, 1)


def test_strides_of_before_it_was_wrapped_are_not_known():
    inner = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    (note,) = stridewise.preflight(DistributedDataParallel(inner), sample=(of((1, 3, 8, 8)),)).notes
    assert "guard_ddp" in note
    for safe in (
        DistributedDataParallel(inner, gradient_as_bucket_view=True),
        DistributedDataParallel(nn.Conv2d(3, 4, 3)),
        inner,
    ):
        assert stridewise.preflight(safe, sample=(of((1, 3, 8, 8)),)).notes == ()


def mesh():
    return dist.device_mesh.init_device_mesh("cpu", (1,))


def test_fsdp2_is_refused_before_and_after_conversion():
    """Torch raises for a converted model, and when a sharded one is converted. Converted images are enough."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    assert "SW220" in {f.code for f in stridewise.preflight(model, process_group=dist.group.WORLD).findings}
    with pytest.raises(NotImplementedError, match="non-contiguous"):
        fully_shard(model, mesh=mesh())
    model = fully_shard(nn.Conv2d(3, 4, 3), mesh=mesh())
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        model.to(memory_format=LAST)

    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    for p in model.parameters():
        p.data = p.data.contiguous()
    assert stridewise.preflight(model, process_group=dist.group.WORLD).findings == ()
    images = torch.randn(2, 3, 8, 8).to(memory_format=LAST)
    assert fully_shard(model, mesh=mesh())(images).is_contiguous(memory_format=LAST)


@pytest.mark.filterwarnings("ignore")  # of FSDP, about itself
def test_fsdp1_takes_channels_last_and_keeps_it():
    from torch.distributed.fsdp import FullyShardedDataParallel

    inner = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    seen = []
    inner.register_forward_pre_hook(lambda module, args: seen.append(module.weight.stride()))
    model = FullyShardedDataParallel(inner, device_id=torch.device("cpu"), use_orig_params=True)
    images = torch.randn(2, 3, 8, 8)
    result = stridewise.preflight(model, process_group=dist.group.WORLD, sample=(images,))
    assert "SW220" not in {f.code for f in result.findings}
    assert [note.partition(":")[0] for note in result.notes] == [
        "Gradients were not looked at",
        "Ranks were not compared",
    ]
    model(images).sum().backward()
    assert seen == [(27, 1, 9, 3)]


def looks(rank):
    """What a rank is told of a model that one of them converted."""
    model = nn.Conv2d(3, 4, 3)
    if rank:
        model = model.to(memory_format=LAST)
    result = stridewise.preflight(model, process_group=dist.group.WORLD)
    return [f.code for f in result.findings if f.severity == "error"], [row.verdict for row in result.looked]


def test_ranks_that_disagree_are_told_on_each_of_them():
    assert world(2, looks) == [
        (["SW202"], ["contiguous", "1 finding"]),
        (["SW202"], ["1 channels_last, 1 contiguous", "1 finding"]),
    ]


def looks_in_a_part(rank):
    """What a rank is told where only the first is in the group."""
    group = dist.new_group([0])
    result = stridewise.preflight(nn.Linear(4, 4), process_group=group, sample=(torch.ones(1, 4),))
    return [row.what for row in result.looked][2:], result.notes


def test_a_rank_outside_the_group_says_so():
    assert world(2, looks_in_a_part) == [
        (["the ranks' parameters and buffers"], ()),
        ([], ("Ranks were not compared: this one is not in the process group.",)),
    ]


def trains(rank):
    """What a rank is told of a wrapped model, and whether its gradients are those of the other."""
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)))
    images = torch.randn(2, 3, 8, 8)
    told = stridewise.preflight(model, process_group=dist.group.WORLD, sample=(images,)).findings
    model(images).sum().backward()
    return [f.code for f in told], [p.grad.sum().item() for p in model.parameters()]


def test_a_trial_does_not_reach_the_other_ranks():
    (told, one), (told_too, other) = world(2, trains)
    assert (told, told_too) == ([], [])
    assert one == other


EXAMPLES = [
    pytest.param(rule, text, id=f"{rule.__name__[-5:]}-{number}")
    for rule in (sw219, sw220)
    for number, text in enumerate(rule.FIRES)
]


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_words(rule, text, snapshot):
    names = {}
    exec(compile(text, "example.py", "exec"), names)
    found = [f for f in stridewise.preflight(**names["subject"]()).findings if f.code == rule.__name__[-5:].upper()]
    lines = [line for f in found for line in (f.message, *f.evidence, f"Write: {f.advice}")]
    assert "\n".join(lines) == snapshot
