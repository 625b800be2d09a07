"""Nothing is found in healthy models: not before training, not in the midst of it, not in channels_last."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import stridewise

from .models import MODELS

IMAGES = tuple(name for name in MODELS if "pixel_values" in MODELS[name]()[1])
OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-4),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 1e-4, momentum=0.9),
    "fused Adam": lambda parameters: torch.optim.Adam(parameters, 1e-4, fused=True),
}


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """All that a check could change, as it is."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [
        [(name, t.detach().clone(), t.stride(), t.data_ptr()) for name, t in tensors],
        [(name, None if p.grad is None else (p.grad.clone(), p.grad.stride())) for name, p in model.named_parameters()],
        copy.deepcopy(optimizer.state_dict()),
        [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        [sorted(vars(module)) for module in model.modules()],
        torch.get_rng_state(),
    ]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def worse_than_notes(model: nn.Module, inputs: dict[str, torch.Tensor], make: Any) -> list[str]:
    """What is found before the first step, and between two."""
    model.train()
    optimizer = make(model.parameters())
    found = []
    for _ in range(2):
        before = state_of(model, optimizer)
        result = stridewise.preflight(model, optimizer, sample=inputs)
        assert same(state_of(model, optimizer), before)
        found += [f"{f.code}: {f.message}" for f in result.findings if f.severity != "note"]
        notes = {f.code for f in result.findings} - {"SW211", "SW212"}
        found += [f"{code}: a note" for code in notes]
        output = model(**inputs)
        value = next(t for t in output.to_tuple() if isinstance(t, torch.Tensor) and t.is_floating_point())
        value.float().square().mean().backward()
        optimizer.step()
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_healthy_model_is_left_in_peace(name, optimizer):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    assert worse_than_notes(model, inputs, OPTIMIZERS[optimizer]) == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", IMAGES)
def test_its_twin_in_channels_last_too(name, optimizer):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.to(memory_format=torch.channels_last)
    inputs = {
        key: value.to(memory_format=torch.channels_last) if value.dim() == 4 else value for key, value in inputs.items()
    }
    assert worse_than_notes(model, inputs, OPTIMIZERS[optimizer]) == []
