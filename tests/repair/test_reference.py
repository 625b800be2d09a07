"""Where results differ by the original's own rounding errors, float64 tells."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from stridewise.repair.trial.observe import Observation, observe
from stridewise.repair.trial.reference import is_as_exact
from stridewise.repair.trial.workload import Workload, of_model


def off_by(results: Observation, share: float) -> Observation:
    return replace(
        results, tensors={name: replace(seen, value=seen.value * (1 + share)) for name, seen in results.tensors.items()}
    )


@pytest.fixture
def workload():
    torch.manual_seed(0)
    with of_model(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), (torch.randn(4, 8),), {}, train=True, loss=None) as made:
        yield made


def test_the_nearer_one_is_as_exact(workload: Workload):
    exact = observe(workload)
    assert is_as_exact(workload, off_by(exact, 0.002), exact)
    assert is_as_exact(workload, off_by(exact, 0.002), off_by(exact, -0.002))


def test_the_farther_one_is_not(workload: Workload):
    exact = observe(workload)
    assert not is_as_exact(workload, exact, off_by(exact, 0.002))
    assert not is_as_exact(workload, off_by(exact, 0.002), off_by(exact, 0.004))


def test_an_original_that_is_far_off_is_no_measure(workload: Workload):
    exact = observe(workload)
    assert not is_as_exact(workload, off_by(exact, 0.5), exact)


def test_everything_is_float32_again(workload: Workload):
    before = observe(workload)
    is_as_exact(workload, before, before)
    after = observe(workload)
    assert {seen.value.dtype for seen in after.tensors.values()} == {torch.float32}
    assert all(torch.equal(seen.value, after.tensors[name].value) for name, seen in before.tensors.items())


def test_a_program_that_names_its_dtype_is_left_alone():
    class Named(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input.to(torch.float32) @ self.weight

    with of_model(Named(4, 4), (torch.randn(2, 4),), {}, train=False, loss=None) as made:
        results = observe(made)
        assert not is_as_exact(made, off_by(results, 0.002), results)
        assert observe(made).tensors["output"].value.dtype == torch.float32
