"""Calls of modules are those of a step, whatever else was recorded."""

import torch
from torch import nn

import stridewise
from stridewise.results import ModuleRow


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(self.layer(x)))


def rows(steps: int, after: int) -> dict[str, ModuleRow]:
    model, other = Twice(), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters())
    with stridewise.record() as recording:
        for _ in range(steps):
            model(torch.randn(5, 4)).sum().backward()
            optimizer.step()
        for _ in range(after):  # in no step: none ends behind them
            model(torch.randn(7, 4))
            other(torch.randn(1, 3))
    return {row.module.removeprefix("Twice."): row for row in stridewise.analyze(recording).modules}


def test_calls_are_those_of_one_step() -> None:
    for steps, after in ((1, 0), (4, 0), (2, 3)):
        found = rows(steps, after)
        assert (found["Twice"].calls, found["layer"].calls, found["last"].calls) == (1, 2, 1), found
        assert found["Twice"].inputs == ("contiguous 5x4",)


def test_a_module_that_ran_in_no_step_is_shown_by_what_was_recorded() -> None:
    found = rows(2, 3)
    assert (found["Linear"].calls, found["Linear"].inputs) == (3, ("contiguous 1x3",))
    assert list(found)[-1] == "Linear"
