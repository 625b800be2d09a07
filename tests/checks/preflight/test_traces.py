"""A preflight leaves no trace, whatever the model, the loss and the sample hold; and says where it could not look."""

import threading

import pytest
import torch
from torch import nn

import stridewise
from stridewise.errors import UsageError

X = torch.ones(2, 4)


def note(**parts) -> str:
    return " ".join(stridewise.preflight(**parts).notes)


def test_a_loss_that_holds_parameters_leaves_no_gradient():
    model, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    stridewise.preflight(
        model, sample=(X,), loss=lambda out: critic(out).sum() + sum(p.square().sum() for p in model.parameters())
    )
    assert [p.grad for p in (*model.parameters(), *critic.parameters())] == [None] * 4


def test_a_sample_with_a_graph_keeps_it():
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    made = generator(X)
    stridewise.preflight(critic, sample=(made,))
    assert generator.weight.grad is None
    made.sum().backward()


def test_what_a_model_keeps_of_its_calls_is_its_own():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x, cache):
            self.calls += 1
            cache.append(x)
            with torch.no_grad():
                self.a.weight.clamp_(-0.1, 0.1)
            return self.a(x)

    model, cache = Counting(), []
    before = model.a.weight.clone()
    stridewise.preflight(model, sample=(X, cache))
    assert (model.calls, cache) == (0, [])
    assert torch.equal(model.a.weight, before)


def test_modules_keep_the_mode_that_they_are_in():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    model[1].eval()
    stridewise.preflight(model, sample=(torch.randn(1, 4),))  # it would raise in training
    assert [module.training for module in model] == [True, False, True]


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Locked(), "can't be copied"),
        (torch.jit.script(nn.Sequential(nn.Linear(4, 4))), "scripted"),
        (nn.Sequential(nn.LazyLinear(3)), "made in its first call"),
    ],
    ids=["locked", "scripted", "lazy"],
)
def test_what_can_not_be_copied_is_not_run(model, why):
    assert why in note(model=model, sample=(X,))
    assert all(p.grad is None for p in model.parameters())


def test_what_an_optimizer_alone_holds_is_looked_at():
    w = nn.Parameter(torch.randn(8, 8)[:, ::2])
    for model in (None, nn.Linear(2, 2)):
        found = stridewise.preflight(model, torch.optim.AdamW([w], fused=True)).findings
        assert "SW204" in {finding.code for finding in found}


def test_optimizers_may_keep_what_they_like():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.state["step"] = 0
    assert stridewise.preflight(model, optimizer).ok


def test_findings_are_told_of_the_optimizer_that_has_them():
    one, other = nn.Linear(4, 8), nn.Linear(4, 8)
    one.weight = nn.Parameter(torch.randn(8, 8)[:, ::2])
    optimizers = torch.optim.AdamW(one.parameters(), fused=True), torch.optim.SGD(other.parameters(), 0.1)
    result = stridewise.preflight(nn.ModuleList([one, other]), optimizers)
    verdicts = {row.what: row.verdict for row in result.looked}
    assert verdicts["AdamW, fused"] == "1 finding"
    assert verdicts["SGD"] == "fits the parameters"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"loss": "x"}, "as loss"),
        ({"loss": lambda out: out}, "no scalar"),
        ({"state_dict": ["a"]}, "as state_dict"),
        ({"batches": "2"}, "as batches"),
        ({"sample": {1: X}}, "no names"),
        ({"optimizer": 3}, "as an optimizer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes_are_one_message(parts, said):
    try:
        told = note(**{"model": nn.Linear(4, 4), "sample": (X,), **parts})
    except UsageError as error:
        told = error.given
    assert said in told


def test_it_shows_itself_as_json():
    assert '"findings": []' in stridewise.preflight(nn.Linear(2, 2)).to_json()
