"""The facts that checks go by: one row for each tensor, with who shares its memory and what belongs to it."""

import pytest
import torch
from torch import nn

from stridewise.checks.preflight.collect import collect, wrapper_of
from stridewise.checks.preflight.facts import Subject
from stridewise.checks.preflight.strides import apart
from stridewise.checks.preflight.trial import observe
from stridewise.errors import UsageError
from stridewise.layout import Layout

LAST = torch.channels_last


def facts(model=None, *optimizers, sample=None, observed=None) -> Subject:
    return collect(model, optimizers, sample, has_ranks=False, state_dict=None, observed=observed)


def test_a_tied_weight_is_one_row_with_all_its_names():
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8)})
    model["head"].weight = model["embed"].weight
    rows = facts(model).tensors
    assert [row.names for row in rows] == [("embed.weight", "head.weight"), ("head.bias",)]
    assert (rows[0].module, rows[0].module_type, rows[0].thing) == ("embed", "Embedding", "parameter `embed.weight`")


def test_views_of_one_storage_have_its_number_and_their_place_in_it():
    flat = torch.zeros(24)
    model = nn.Module()
    model.a = nn.Parameter(flat[:8].view(2, 4))
    model.b = nn.Parameter(flat[8:].view(4, 4)[:, ::2])
    model.register_buffer("c", torch.zeros(3, dtype=torch.float64), persistent=False)
    a, b, c = facts(model).tensors
    assert a.storage == b.storage != c.storage
    assert (a.reach, b.reach, c.reach) == ((0, 32), (32, 92), (0, 24))
    assert (a.view_bytes, b.view_bytes, b.storage_bytes) == (32, 32, 96)
    assert (b.layout.strides, b.layout.offset) == ((4, 2), 8)
    assert (c.kind, c.persistent, c.dtype, c.itemsize) == ("buffer", False, "float64", 8)
    assert (a.persistent, a.requires_grad) == (True, True)


def test_what_has_no_layout_is_told_apart():
    model = nn.Module()
    model.a = nn.Parameter(torch.eye(3).to_sparse())
    model.b = nn.Parameter(torch.zeros(0, 3))
    model.c = nn.Parameter(torch.zeros(()))
    with torch.device("meta"):
        model.d = nn.Parameter(torch.zeros(4, 4))
    model.e = nn.parameter.UninitializedParameter()
    subject = facts(model)
    assert [(row.name, row.reach, row.device) for row in subject.tensors] == [
        ("b", (0, 0), "cpu"),
        ("c", (0, 4), "cpu"),
        ("d", (0, 64), "meta"),
    ]
    assert list(subject.unseen) == ["a"]
    assert "sparse_coo" in subject.unseen["a"]


def test_an_optimizer_with_the_names_of_the_model():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 4))
    groups = [
        {"params": list(model[0].parameters()), "fused": True},
        {"params": list(model[1].parameters()), "foreach": False},
    ]
    optimizer = torch.optim.Adam(groups)
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    optimizer.step()
    model[0].to(memory_format=LAST)
    stray = nn.Parameter(torch.zeros(3))
    subject = facts(model, optimizer, torch.optim.SGD([stray], 0.1))
    first, second = subject.optimizers
    assert (first.name, first.fused, first.foreach) == ("Adam", {"0.weight", "0.bias"}, frozenset())
    assert first.parameters == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert {(row.parameter, row.key, row.layout.strides) for row in first.state} == {
        ("0.weight", "exp_avg", (27, 9, 3, 1)),
        ("0.weight", "exp_avg_sq", (27, 9, 3, 1)),
    }
    assert second.foreach == second.parameters == {"SGD 1, group 0, parameter 0"}
    assert [(row.name, row.module_type, row.persistent) for row in subject.tensors[4:]] == [
        ("SGD 1, group 0, parameter 0", "", False)
    ]


def test_gradients_as_they_are_and_as_a_trial_gives_them():
    model = nn.Linear(3, 4)
    model.weight.grad = torch.zeros(3, 4).t()
    trial = observe(model, (torch.randn(2, 3),), None)
    weight, bias = facts(model, observed=trial).tensors
    assert (weight.gradient.strides, weight.observed.strides) == ((1, 4), (3, 1))
    assert (bias.gradient, bias.observed.strides) == (None, (1,))
    assert trial.inputs == {"": Layout((2, 3), (3, 1))}


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(8, 8).t()[:4, ::2],
        lambda: torch.randn(8, 8)[1:, ::3],
        lambda: torch.randn(4, 6).t(),
        lambda: torch.randn(2, 3, 4, 4).to(memory_format=LAST)[:, :2],
        lambda: torch.randn(5, 1),
    ],
    ids=["transposed with gaps", "gaps", "transposed", "channels_last with gaps", "column"],
)
def test_a_trial_gives_the_gradient_that_the_model_itself_would_get(make):
    """A copy of a parameter has no gaps; with those closed its gradient would have another order."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(make())

        def forward(self, x):
            return x * self.w

    model = Scaled()
    x = torch.randn(model.w.shape).mT.contiguous().mT
    trial = observe(model, (x,), None)
    model(x).square().mean().backward()
    assert trial.gradients[id(model.w)].strides == model.w.grad.stride()


def test_a_wrapper_is_known_by_its_class():
    assert wrapper_of(None) is None
    assert wrapper_of(nn.Linear(1, 1)) is None


def test_how_strides_differ():
    given = Layout((4, 1, 3), (3, 3, 1))
    assert apart(given, Layout((4, 1, 3), (3, 3, 1), 7)) == "no"
    assert apart(given, Layout((4, 1, 3), (3, 99, 1))) == "size 1"
    assert apart(given, Layout((4, 1, 3), (1, 3, 4))) == "yes"
    assert apart(given, Layout((4, 3), (3, 1))) == "yes"
    assert apart(Layout((0, 3), (3, 1)), Layout((0, 3), (1, 1))) == "size 1"


def test_no_optimizer_is_refused():
    from stridewise.checks.preflight.collect import optimizers_of

    with pytest.raises(UsageError, match="was given str as an optimizer"):
        optimizers_of(["adam"])
    with pytest.raises(UsageError, match="was given int as an optimizer"):
        optimizers_of(3)
