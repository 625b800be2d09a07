"""SW211: which functions of torch raise for which layouts, by calling all of them."""

import inspect
import warnings

import pytest
import torch
import torch.nn.utils.prune
from torch import nn

from stridewise.checks.preflight import preflight
from stridewise.checks.rules.sw211 import RAISES
from stridewise.layout import Layout

LAST = torch.channels_last
LAYOUTS = {
    "contiguous": lambda: torch.randn(4, 3, 3, 3),
    "channels_last": lambda: torch.randn(4, 3, 3, 3).to(memory_format=LAST),
    "channels_last, 1x1": lambda: torch.randn(4, 3, 1, 1).to(memory_format=LAST),
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(3, 4, 5).permute(1, 0, 2),
    "permuted behind": lambda: torch.randn(4, 3, 5).permute(0, 2, 1),
    "gapped": lambda: torch.randn(4, 8)[:, :6],
    "gapped and permuted": lambda: torch.randn(4, 8, 3)[:, :6].permute(0, 2, 1),
    "rows": lambda: torch.randn(8, 6)[::2],
}


class Holder(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


def initialised(name):
    function = getattr(nn.init, name)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    return lambda model: function(model.weight, *[0.5] * (len(required) - 1))


def lbfgs(model):
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = model.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def optimized(name):
    def call(model):
        model.weight.square().sum().backward()
        getattr(torch.optim, name)(model.parameters()).step()

    return call


def graded(function):
    def call(model):
        model.weight.square().sum().backward()
        function(model)

    return call


prune = torch.nn.utils.prune
CALLS = {
    **{
        f"torch.nn.init.{name}": initialised(name)
        for name in sorted(vars(nn.init))
        if name.endswith("_") and name[0] != "_"
    },
    **{
        f"torch.optim.{name}": lbfgs if name == "LBFGS" else optimized(name)
        for name, kind in sorted(vars(torch.optim).items())
        if isinstance(kind, type) and name not in ("Optimizer", "SparseAdam", "Muon")
    },
    "torch.nn.utils.parameters_to_vector": lambda model: nn.utils.parameters_to_vector(model.parameters()),
    "torch.nn.utils.vector_to_parameters": lambda model: nn.utils.vector_to_parameters(
        torch.zeros(model.weight.numel()), model.parameters()
    ),
    "torch.nn.utils.clip_grad_norm_": graded(lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0)),
    "torch.nn.utils.clip_grad_value_": graded(lambda model: nn.utils.clip_grad_value_(model.parameters(), 1.0)),
    "torch.nn.utils.spectral_norm": lambda model: nn.utils.parametrizations.spectral_norm(model).weight,
    "torch.nn.utils.weight_norm": lambda model: nn.utils.parametrizations.weight_norm(model).weight,
    "torch.nn.utils.prune.l1_unstructured": lambda model: prune.l1_unstructured(model, "weight", 0.5),
    "torch.nn.utils.prune.random_unstructured": lambda model: prune.random_unstructured(model, "weight", 0.5),
    "torch.nn.utils.prune.ln_structured": lambda model: prune.ln_structured(model, "weight", 0.5, 2, 0),
    "torch.nn.utils.prune.random_structured": lambda model: prune.random_structured(model, "weight", 0.5, 0),
    "torch.nn.utils.prune.global_unstructured": lambda model: prune.global_unstructured(
        [(model, "weight")], prune.L1Unstructured, amount=0.5
    ),
}


def raises(call, weight):
    """Whether it raises for a layout; None if it does for contiguous values as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = []
        for each in (weight.clone(memory_format=torch.contiguous_format), weight):
            try:
                call(Holder(each))
            except (RuntimeError, ValueError):
                outcomes.append(True)
            else:
                outcomes.append(False)
    return None if outcomes[0] else outcomes[1]


@pytest.mark.parametrize("name", CALLS)
def test_it_is_known_what_each_call_raises_for(name):
    refuses = RAISES.get(name, lambda layout: False)
    for shown, make in LAYOUTS.items():
        weight = make()
        if (outcome := raises(CALLS[name], weight)) is not None:
            layout = Layout(tuple(weight.shape), weight.stride(), weight.storage_offset())
            assert outcome == refuses(layout), shown


def test_all_that_are_told_are_called():
    assert RAISES.keys() <= CALLS.keys()


def findings(**parts):
    return [finding for finding in preflight(**parts).findings if finding.code == "SW211"]


def test_a_model_with_such_parameters_has_one_note():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)).to(memory_format=LAST)
    (found,) = findings(model=model)
    assert (found.severity, found.count) == ("note", 2)
    assert "torch.optim.LBFGS" not in found.message
    for p in model.parameters():
        p.data = p.data.contiguous()
    assert findings(model=model) == []


def test_only_what_raises_is_told():
    model = Holder(torch.randn(4, 6).t())
    (found,) = findings(model=model)
    assert "parameters_to_vector" in found.message
    assert "orthogonal_" not in found.message
    nn.init.orthogonal_(model.weight)
    flat = torch.cat([p.reshape(-1) for p in model.parameters()])
    assert torch.equal(flat, nn.utils.parameters_to_vector([model.weight.contiguous()]))


def test_the_cure_names_a_conversion_only_where_there_was_one():
    (converted,) = findings(model=nn.Conv2d(3, 4, 3).to(memory_format=LAST))
    assert converted.advice.startswith("Call them before the conversion; flatten with")
    model = Holder(torch.randn(4, 6).t())
    (found,) = findings(model=model)
    assert found.advice.startswith("`p.data = p.data.contiguous()` for each parameter, before they are called;")
    for p in model.parameters():
        p.data = p.data.contiguous()
    assert findings(model=model) == []


def test_initialising_first_is_the_cure():
    model = nn.Conv2d(3, 4, 3)
    nn.init.orthogonal_(model.weight)
    model.to(memory_format=LAST)
    with pytest.raises(RuntimeError, match="view size"):
        nn.init.orthogonal_(model.weight)


def test_lbfgs_is_warned_of_by_its_name():
    model = Holder(torch.randn(4, 3, 3, 3).to(memory_format=LAST))
    optimizer = torch.optim.LBFGS(model.parameters())
    warning, note = findings(model=model, optimizer=optimizer)
    assert (warning.severity, note.severity) == ("warning", "note")
    assert warning.message.startswith(
        "The step of LBFGS raises for 1 parameter that is not contiguous, such as `weight`"
    )
    with pytest.raises(RuntimeError, match="view size"):
        lbfgs(model)
    model = Holder(torch.randn(4, 3, 3, 3).to(memory_format=LAST))
    model.weight.data = model.weight.data.contiguous()
    assert findings(model=model, optimizer=torch.optim.LBFGS(model.parameters())) == []
    lbfgs(model)


def test_lbfgs_of_another_part_of_the_model_is_fine():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 4)).to(memory_format=LAST)
    found = findings(model=model, optimizer=torch.optim.LBFGS(model[1].parameters()))
    assert [finding.severity for finding in found] == ["note"]
