"""SW206: what goes wrong with such parameters in torch, that it is told, and that the advised edit cures it."""

import copy

import pytest
import torch
from torch import nn

from stridewise.checks.preflight import preflight

OVERLAPPING = {
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "windows": lambda: torch.arange(10.0).unfold(0, 4, 2),
}


class Holder(nn.Module):
    def __init__(self, **parameters):
        super().__init__()
        for name, tensor in parameters.items():
            setattr(self, name, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor))


def named(model, code="SW206"):
    return [finding for finding in preflight(model).findings if finding.code == code]


def stepped(model, optimizer=torch.optim.SGD):
    for parameter in model.parameters():
        parameter.grad = torch.arange(1.0, parameter.numel() + 1).reshape(parameter.shape)
    optimizer(model.parameters(), lr=0.1).step()
    return model.w.detach().clone()


@pytest.mark.parametrize("name", OVERLAPPING)
def test_overlapping_parameters_can_not_be_trained(name):
    model = Holder(w=OVERLAPPING[name]())
    right = stepped(Holder(w=OVERLAPPING[name]().clone()))
    (found,) = named(model)
    assert found.severity == "error"
    if name == "expanded":
        assert "step raises" in found.message
        with pytest.raises(RuntimeError, match="single memory location"):
            stepped(model)
    else:
        assert "wrong values" in found.message
        assert not torch.equal(stepped(model), right)
    cured = Holder(w=OVERLAPPING[name]())
    for p in cured.parameters():
        p.data = p.data.clone()
    assert named(cured) == []
    assert torch.equal(stepped(cured), right)


@pytest.mark.parametrize("name", OVERLAPPING)
def test_overlapping_buffers_can_not_be_loaded(name):
    model, given = nn.Module(), OVERLAPPING[name]()
    model.register_buffer("b", given)
    values = {"b": torch.rand(given.shape)}
    (found,) = named(model)
    assert (found.severity, found.site.expression) == ("warning", "buffer `b`")
    if name == "expanded":
        with pytest.raises(RuntimeError, match="single memory location"):
            model.load_state_dict(values)
    else:
        model.load_state_dict(values)
        assert not torch.equal(model.b, values["b"])
    model.b = OVERLAPPING[name]().clone()
    assert named(model) == []
    model.load_state_dict(values)
    assert torch.equal(model.b, values["b"])


def test_gaps_are_a_warning_and_are_closed():
    model = Holder(w=torch.randn(8, 8)[:, ::2], other=torch.randn(8, 8)[:, :3])
    (found,) = named(model)
    assert (found.severity, found.count) == ("warning", 2)
    assert found.message.startswith(
        "Parameter `w` (and 1 more) is gapped, (8, 4) with strides (8, 2): a view with gaps."
    )
    assert len(found.evidence) == 2
    for p in model.parameters():
        p.data = p.data.clone()
    assert preflight(model).findings == ()


def test_a_slice_of_rows_has_no_gaps():
    assert named(Holder(w=torch.randn(8, 4)[2:5])) == []


def test_a_transposed_parameter_is_none():
    assert named(Holder(w=torch.randn(8, 4).t())) == []


def tied():
    model = nn.ModuleDict({"embed": nn.Embedding(4, 6), "head": nn.Linear(6, 4, bias=False)})
    model["head"].weight = model["embed"].weight
    return model


def test_the_edit_keeps_ties():
    model = tied()
    model["embed"].weight.data = torch.randn(4, 12)[:, ::2]
    (found,) = named(model)
    assert (found.count, found.site.expression) == (1, "parameter `embed.weight`")
    for p in model.parameters():
        p.data = p.data.clone()
    assert model["head"].weight is model["embed"].weight
    assert preflight(model).findings == ()
    lost = copy.deepcopy(model)
    lost["embed"].weight = nn.Parameter(lost["embed"].weight.data.clone())
    assert lost["head"].weight is not lost["embed"].weight


def adam_step(model):
    x = torch.tensor([[0, 1, 2, 3]])
    model["head"](model["embed"](x)).sum().backward()
    before = model["embed"].weight.detach().clone()
    torch.optim.Adam(model.parameters(), lr=0.1).step()
    return (model["embed"].weight.detach() - before).abs().max().item()


def test_two_parameters_with_one_memory_are_updated_twice():
    """`load_state_dict(assign=True)` makes them of tied weights."""
    torch.manual_seed(0)
    once = adam_step(tied())
    model = tied()
    model.load_state_dict(tied().state_dict(), assign=True)
    (found,) = named(model)
    assert found.severity == "error"
    assert found.site.expression == "parameters `embed.weight` and `head.weight`"
    assert adam_step(copy.copy(model)) > 1.5 * once
    model["head"].weight = model["embed"].weight
    assert named(model) == []
    model.zero_grad()
    assert adam_step(model) == pytest.approx(once, rel=1e-3)


def test_clone_parts_parameters_that_are_meant_to_differ():
    base = torch.randn(6, 4)
    model = Holder(w=base[:4], v=base[2:])
    (found,) = named(model)
    assert "bytes 0 to 64 and 32 to 96 of one storage" in found.evidence
    assert found.advice.startswith("`p.data = p.data.clone()`, for `v` as `p`")
    model.v.data = model.v.data.clone()
    assert named(model) == []


def test_frozen_parameters_may_share_memory():
    base = torch.randn(6, 4)
    model = Holder(w=base[:4], v=base[2:]).requires_grad_(False)
    assert named(model) == []


@pytest.mark.parametrize(
    "views",
    [
        lambda base: (base[:3], base[3:]),
        lambda base: (base[:, :2].t(), base[:, 2:].t()),
        lambda base: (base[::2], base[1::2]),
        lambda base: (base.flatten()[:5], base.view(torch.int32).flatten()[5:].view(torch.float32)),
    ],
    ids=["rows", "columns", "every other row", "flat"],
)
def test_views_beside_each_other_do_not_share_memory(views):
    one, other = views(torch.randn(6, 4))
    assert [found for found in named(Holder(w=one, v=other)) if "common memory" in found.message] == []


def test_parameters_on_meta_have_no_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert preflight(model).findings == ()
