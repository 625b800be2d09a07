"""Nothing is found in healthy models: not before training, not in the midst of it, not in channels_last."""

import copy
import random
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import stridewise

from .models import MODELS

PLAIN = tuple(name for name in MODELS if not name.endswith("channels_last"))
IMAGES = tuple(name for name in PLAIN if "pixel_values" in MODELS[name]()[1])
OF_THE_FORMAT = {"SW211", "SW212"}
"""What is true of every model in channels_last, and only a note."""


def state_of(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[Any]:
    """All that a check could change, as it is."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [
        [(name, t.detach().clone(), t.stride(), t.data_ptr(), t._version) for name, t in tensors],
        [(name, None if p.grad is None else (p.grad.clone(), p.grad.stride())) for name, p in model.named_parameters()],
        [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers],
        [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        [sorted((key, id(value)) for key, value in vars(module).items()) for module in model.modules()],
        [torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()],
    ]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def loss_of(output: Any) -> torch.Tensor:
    return next(t for t in output.to_tuple() if t.is_floating_point()).float().square().mean()


def said_while_it_trains(model: nn.Module, inputs: dict[str, torch.Tensor]) -> list[str]:
    """The codes and notes before the first step, and between two, with three optimizers."""
    model.train()
    optimizers = [
        torch.optim.AdamW(model.parameters(), 1e-4),
        torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9),
        torch.optim.Adam(model.parameters(), 1e-4, fused=True),
    ]
    samples = [{key: value[0].clone(memory_format=torch.contiguous_format) for key, value in inputs.items()}] * 4
    said = []
    for _ in range(2):
        before = state_of(model, optimizers)
        result = stridewise.preflight(model, optimizers, DataLoader(samples, batch_size=2), sample=inputs)
        assert same(state_of(model, optimizers), before)
        assert len(result.looked) == 6
        assert result.ok
        said += [finding.code for finding in result.findings] + list(result.notes)
        loss_of(model(**inputs)).backward()
        for optimizer in optimizers:
            optimizer.step()
    return said


@pytest.mark.parametrize("name", PLAIN)
def test_a_healthy_model_is_left_in_peace(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    assert said_while_it_trains(model, inputs) == []


@pytest.mark.parametrize("name", IMAGES)
def test_its_twin_in_channels_last_too(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.to(memory_format=torch.channels_last)
    inputs = {
        key: value.to(memory_format=torch.channels_last) if value.dim() == 4 else value for key, value in inputs.items()
    }
    assert set(said_while_it_trains(model, inputs)) <= OF_THE_FORMAT


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one, and threads enough for kernels of real machines."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        yield
        dist.destroy_process_group()
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", PLAIN)
def test_the_warning_of_data_parallel_is_said_exactly_where_it_comes(alone: None, name: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    wrapped = DistributedDataParallel(model.train(), find_unused_parameters=True)
    result = stridewise.preflight(wrapped, sample=inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            loss_of(wrapped(**inputs)).backward()
        finally:
            torch.set_warn_always(False)
    warned = any("do not match bucket view strides" in str(warning.message) for warning in caught)
    assert [(f.code, f.severity) for f in result.findings] == ([("SW219", "note")] if warned else [])
