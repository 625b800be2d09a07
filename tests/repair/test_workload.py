"""A workload runs the same step again and again, and leaves the program as it was."""

import pytest
import torch
from torch import Tensor, nn

from stridewise.errors import UsageError
from stridewise.repair.trial.memory import measure_memory
from stridewise.repair.trial.workload import of_model, of_step, step_or_model


def test_a_model_is_left_as_it_was():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()), torch.randn(8, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with of_model(model, (x,), {}, train=True, loss=None) as workload:
        assert model.training
        for _ in range(3):
            workload.prepare()
            workload.run()
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(("was", "train", "inside"), [(True, False, False), (False, True, False), (True, True, True)])
def test_without_a_backward_a_model_is_in_evaluation_and_else_in_its_own_mode(was, train, inside):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train(was)
    with of_model(model, (torch.ones(1, 2),), {}, train=train, loss=None):
        assert model.training == inside
    assert model.training == was


def test_an_optimizer_that_a_gradient_steps_is_put_back_and_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    handles = [p.register_post_accumulate_grad_hook(lambda _: optimizer.step()) for p in model.parameters()]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with (
        pytest.raises(UsageError, match="changes its parameters"),
        of_model(model, (torch.ones(1, 2),), {}, train=True, loss=None),
    ):
        pass
    assert all(map(torch.equal, before, model.parameters()))
    assert not optimizer.state
    assert handles


def test_a_step_with_an_optimizer_starts_from_the_same_state_each_time():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3), torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weight = model.weight.detach().clone()

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    with of_step(step) as workload:
        assert workload.model is model
        assert workload.optimizers == (optimizer,)
        losses = set()
        for _ in range(3):
            workload.prepare()
            losses.add(workload.run())
        assert len(losses) == 1
    assert torch.equal(model.weight, weight)
    assert not optimizer.state


def test_a_step_that_fails_leaves_the_program_as_it_was():
    model, x = nn.BatchNorm1d(3), torch.randn(4, 3)

    def step() -> None:
        model(x)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), of_step(step):
        pass
    assert model.num_batches_tracked == 0


def test_a_model_that_changes_its_parameters_is_refused():
    class Odd(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            with torch.no_grad():
                self.weight.add_(1)
            return super().forward(input)

    with (
        pytest.raises(UsageError, match="changes its parameters"),
        of_model(Odd(2, 2), (torch.ones(1, 2),), {}, train=False, loss=None),
    ):
        pass


def test_time_is_taken_from_the_clock_around_the_step_alone():
    ticks = iter([100, 350])
    with of_model(nn.Linear(2, 2), (torch.ones(1, 2),), {}, train=False, loss=None) as workload:
        assert workload.timed(lambda: next(ticks)) == 250


@pytest.mark.parametrize(
    ("made", "args", "kwargs"),
    [
        ((torch.relu, torch.ones(2)), 1, []),
        ((torch.relu, (torch.ones(2),)), 1, []),
        ((torch.add, [1, 2]), 2, []),
        ((torch.relu, {"input": torch.ones(2)}), 0, ["input"]),
        ((torch.add, (1,), {"other": 2}), 1, ["other"]),
    ],
    ids=["tensor", "tuple", "list", "dict", "both"],
)
def test_what_a_target_gives(made, args, kwargs):
    given = step_or_model(made, "t.py:make")
    assert given is not None
    assert given[0] is made[0]
    assert (len(given[1]), list(given[2])) == (args, kwargs)


@pytest.mark.parametrize(
    "made",
    [None, torch.ones(1), 1.0, [torch.ones(1)], lambda: None],
    ids=["nothing", "a tensor", "a number", "a list", "a function"],
)
def test_what_else_is_a_step(made):
    assert step_or_model(made, "t.py:make") is None


@pytest.mark.parametrize("made", [nn.Linear(1, 1), "text", object()], ids=["model", "text", "object"])
def test_what_is_neither(made):
    with pytest.raises(UsageError, match=r"t\.py:make returns"):
        step_or_model(made, "t.py:make")


def test_memory_of_a_step():
    x = torch.ones(250_000)  # 1 MB

    def step() -> Tensor:
        doubled = x * 2
        return (doubled + 1)[:1]

    with of_step(step) as workload:
        memory = measure_memory(workload)
    assert memory.peak == pytest.approx(2e6, rel=0.01)
    assert memory.kept == pytest.approx(1e6, rel=0.01)
