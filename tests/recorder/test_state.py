"""A program's state is kept before a step and brought back after it, whatever the step did."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stridewise.recorder.reach import Reached
from stridewise.recorder.state import State, keep_state


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.seen: list[float] = []
        self.cache: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(float(x.detach().sum()))
        y: Tensor = self.norm(self.fc(x))
        self.cache = y.detach()
        return y


def test_buffers_attributes_and_containers_come_back():
    model, x = Counter(), torch.randn(8, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = keep_state([("", model), ("", x)])
    model(x)
    state.restore()
    assert model.calls == 0
    assert model.seen == []
    assert model.cache is None
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_parameters_gradients_and_moments_come_back():
    model, x = Counter(), torch.randn(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    step()
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    gradients = [parameter.grad for parameter in model.parameters()]
    values = [gradient.clone() for gradient in gradients if gradient is not None]
    moment = optimizer.state[model.fc.weight]["exp_avg"]
    moment_before, count_before = moment.clone(), optimizer.state[model.fc.weight]["step"].clone()
    state = keep_state([("", step)])
    step()
    step()
    state.restore()
    assert all(map(torch.equal, kept, model.parameters()))
    assert all(now.grad is then for now, then in zip(model.parameters(), gradients, strict=True))
    assert all(map(torch.equal, values, [g for g in gradients if g is not None]))
    assert optimizer.state[model.fc.weight]["exp_avg"] is moment
    assert torch.equal(moment, moment_before)
    assert torch.equal(optimizer.state[model.fc.weight]["step"], count_before)


def test_steps_from_one_state_are_equal_bit_for_bit():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), torch.randn(8, 4)
    state = keep_state([("", model), ("", x)])
    first = model(x)
    state.restore()
    assert torch.equal(first, model(x))


def test_random_states_of_python_and_numpy_come_back():
    state = keep_state([])
    drawn = random.random(), np.random.rand(), torch.rand(())
    state.restore()
    assert drawn == (random.random(), np.random.rand(), torch.rand(()))


def test_only_what_a_step_changes_stays_copied():
    model, x = Counter(), torch.randn(8, 4)
    state = keep_state([("", model), ("", x)])
    model(x)
    state.settle()
    assert {name for name, _ in state.changing} == {
        "buffer `norm.running_mean`", "buffer `norm.running_var`", "buffer `norm.num_batches_tracked`",
    }  # fmt: skip


def test_what_was_put_in_another_place_comes_back():
    model = nn.Linear(4, 4)
    weight, place = model.weight, model.weight.data_ptr()
    state = keep_state([("", model)])
    model.weight.data = torch.zeros(4, 4).t()
    model.bias = None
    state.restore()
    assert model.weight is weight
    assert weight.data_ptr() == place
    assert weight.stride() == (4, 1)
    assert model.bias is not None


@pytest.mark.parametrize("wrap", ["closure", "partial", "method", "default"])
def test_models_are_found_in_whatever_a_step_is(wrap):
    model, x = Counter(), torch.randn(8, 4)

    class Trainer:
        def __init__(self) -> None:
            self.model = model

        def step(self) -> Tensor:
            return self.model(x)

    def with_default(model: nn.Module = model) -> Tensor:
        return model(x)

    steps = {
        "closure": lambda: model(x), "partial": partial(model, x), "method": Trainer().step, "default": with_default,
    }  # fmt: skip
    assert next(module for _, module in Reached([("", steps[wrap])]).modules.values()) is model


def test_odd_tensors_are_left_alone():
    things = [
        torch.eye(3).to_sparse(),
        torch.empty(2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch.ones(1).expand(5),
    ]
    state = State(Reached([("", things)]), parameters=True)
    state.settle()
    state.restore()
    assert list(state.changing) == []


def test_a_lazy_module_stays_what_its_first_call_made_of_it():
    model, x = nn.LazyLinear(3), torch.randn(2, 4)
    state = keep_state([("", model)])
    model(x)
    state.restore()
    assert model(x).shape == (2, 3)


def test_not_a_number_is_no_change():
    model = nn.Module()
    model.register_buffer("empty", torch.full((3,), float("nan")))
    state = keep_state([("", model)])
    state.settle()
    assert list(state.changing) == []


def test_what_functions_bind_and_containers_of_all_kinds_come_back():
    scope: dict[str, object] = {}
    exec(
        "import collections, numpy\ncount = 0\nheld = collections.deque([1]); names = {'a'}; array = numpy.zeros(2)\n"
        "def step():\n    global count, new\n    count += 1; new = 1\n"
        "    held.append(2); names.add('b'); array[0] = 5\n",
        scope,
    )
    state = keep_state([("", scope["step"])])
    scope["step"]()  # type: ignore[operator]
    state.restore()
    assert (scope["count"], "new" in scope) == (0, False)
    assert (list(scope["held"]), scope["names"], scope["array"].tolist()) == ([1], {"a"}, [0, 0])  # type: ignore


def test_generators_and_variables_around_a_step_come_back():
    generator, numbers, own = torch.Generator(), np.random.default_rng(0), random.Random(0)
    count = 0

    def step() -> list[float]:
        nonlocal count
        count += 1
        return [torch.rand((), generator=generator).item(), numbers.random(), own.random()]

    state = keep_state([("", step)])
    first = step()
    state.restore()
    assert count == 0
    assert step() == first


COUNT = 0
LIST: list[int] = []


class Noting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        LIST.append(COUNT)
        return x


def test_what_a_forward_binds_comes_back():
    model = Noting()
    state = keep_state([("", model)])
    model(torch.ones(1))
    state.restore()
    assert (COUNT, LIST) == (0, [])
