"""Results of two steps are compared by value, with a stated tolerance, and by layout."""

import pytest
import torch
from torch import Tensor, nn

from stridewise.repair.refused import Refused
from stridewise.repair.trial.observe import TOLERANCES, Observation, Seen, compare, in_words, observe
from stridewise.repair.trial.workload import of_model, of_step


def results_of(output: object) -> Observation:
    with of_step(lambda: output) as workload:
        return observe(workload)


def difference(before: object, after: object, tolerance: float | None = None) -> float:
    return compare(results_of(before), results_of(after), tolerance).difference


def test_equal_bits_differ_by_nothing():
    assert difference({"a": torch.ones(3)}, {"a": torch.ones(3)}) == 0


def test_a_difference_is_a_share_of_the_largest_magnitude():
    assert difference(torch.tensor([0.0, 100.0]), torch.tensor([1e-4, 100.0])) == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_more_than_is_tolerated_is_refused(dtype):
    one = torch.ones(4, dtype=dtype)
    step = max(2 * TOLERANCES[dtype], 2 * torch.finfo(dtype).eps)
    with pytest.raises(Refused, match="changes results: output differs by"):
        difference(one, one + step)


def test_the_tolerance_can_be_set():
    assert difference(torch.ones(2), torch.ones(2) + 0.01, 0.1) > 0
    with pytest.raises(Refused):
        difference(torch.ones(2), torch.ones(2) + 1e-6, 0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.tensor([1.0, float("nan")])),
        (torch.tensor([float("inf")]), torch.tensor([-float("inf")])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([True]), torch.tensor([False])),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
        (torch.zeros(2), torch.full((2,), 1e-30)),
        ((torch.ones(1), 2.0), (torch.ones(1), 2.1)),
    ],
    ids=["shape", "dtype", "nan", "infinity", "integers", "booleans", "names", "beside zero", "a number"],
)
def test_other_results_are_refused(before, after):
    with pytest.raises(Refused, match="it changes"):
        difference(before, after)


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor([1.0, float("nan"), float("inf")]),
        torch.empty(0),
        torch.zeros(3),
        torch.eye(3).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        None,
    ],
    ids=["nan", "empty", "zeros", "sparse", "complex", "nothing"],
)
def test_odd_results_are_equal_to_themselves(output):
    assert difference(output, output) == 0


def test_another_layout_of_what_leaves_the_program_is_told():
    image = torch.randn(2, 3, 4, 5)
    found = compare(results_of(image), results_of(image.to(memory_format=torch.channels_last)))
    assert found.difference == 0
    assert found.layouts == ("output: contiguous becomes channels_last",)


def test_gradients_and_what_a_step_changes_are_results():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(8, 3)
    with of_model(model, (x,), {}, train=True, loss=None) as workload:
        names = set(observe(workload).tensors)
    assert {"output", "gradient of parameter `0.weight`", "buffer `1.running_mean` after the step"} <= names


def test_a_gradient_that_is_nothing_but_rounding_errors_may_be_another():
    def gradients(of: float) -> Observation:
        tensors = {
            "gradient of large": Seen(torch.ones(2), None),
            "gradient of small": Seen(torch.full((2,), of), None),
        }
        return Observation(tensors, {})

    assert compare(gradients(1e-9), gradients(-1e-9)).difference < 1e-6
    with pytest.raises(Refused, match="gradient of small differs"):
        compare(gradients(1e-3), gradients(1.1e-3))


def test_a_tensor_that_is_written_through_a_view_is_a_result():
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = torch.zeros(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.kept.t()[0] = x
            return x * 2

    model = Cache()
    with of_model(model, (torch.ones(4),), {}, train=False, loss=None) as workload:
        assert "kept after the step" in observe(workload).tensors
    assert torch.equal(model.kept, torch.zeros(4, 3))


def test_a_write_that_no_longer_reaches_a_tensor_is_refused_whatever_its_value():
    one = {"output": Seen(torch.ones(1), None)}
    with pytest.raises(Refused, match="kept is no longer written to"):
        compare(Observation(one, {}, frozenset({"kept"})), Observation(one, {}))


def test_the_tolerance_in_words():
    assert "2e-05 (float32)" in in_words(None)
    assert in_words(1e-3) == "results within 0.001 of the largest magnitude, gradients within 0.01"
