"""What counts as equal: rounding does, and nothing else."""

import pytest
import torch

from stridewise.checks.operators.compare import calibrated, difference, slack, tolerance_of

X = torch.tensor([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (X + torch.tensor([0, 0, 2.0]), "1 of 3 elements differs, by up to 2, 50 % of the largest"),
        (X * torch.nan, "3 of 3 elements differ, some of them by no finite number"),
        (X[:2], "sizes (2,), not (3,)"),
        (X.double(), "torch.float64, not torch.float32"),
        (X + 40, "3 of 3 elements differ, by up to 40, 10.0 times the largest"),
    ],
)
def test_what_differs(result, words):
    found = difference(result, X, 1e-5)
    assert found is not None
    assert found.detail == words


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (X + 1e-5, X),
        (torch.tensor([torch.nan, torch.inf]), torch.tensor([torch.nan, torch.inf])),
        (torch.tensor([1, 2]), torch.tensor([1, 2])),
        (torch.empty(0), torch.empty(0)),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 2j])),
    ],
)
def test_what_is_equal(result, expected):
    assert difference(result, expected, 1e-5) is None


def test_integers_have_no_tolerance():
    assert difference(torch.tensor([1000001]), torch.tensor([1000000]), 0.5) is not None


def test_what_cancels_out_is_held_against_what_is_usual():
    noise, nothing = torch.tensor([1e-7]), torch.tensor([0.0])
    assert difference(noise, nothing, 1e-5) is not None
    assert difference(noise, nothing, 1e-5, usual=1.0) is None


def test_the_tolerance_is_that_of_the_coarsest_dtype():
    assert tolerance_of([torch.float64]) < tolerance_of([torch.float32]) < tolerance_of([torch.float32, torch.bfloat16])
    assert tolerance_of([torch.int64]) == 0


def test_what_is_far_from_float64_is_no_measure():
    assert calibrated(1e-5, None) == calibrated(1e-5, 1.0) == calibrated(1e-5, 1e-9) == 1e-5
    assert calibrated(1e-5, 1e-4) == pytest.approx(1e-3)


def test_slack_is_how_a_result_differs_for_operands_rounded_otherwise():
    expected = {"output": torch.tensor([0.0, 0.0, 4.0]), "index": torch.tensor([2, 0])}
    nudged = [{"output": torch.tensor([1e-6, 0.0, 4.0]), "index": torch.tensor([1, 0])}]
    allowed = slack(expected, nudged, 0.0)
    assert torch.allclose(allowed["output"].float(), torch.tensor([1.6e-5, 1.6e-5, 1.6e-5]))
    assert allowed["index"].tolist() == [1.0, 0.0]
    assert difference(torch.tensor([0.0, 1e-5, 4.0]), expected["output"], 0.0, 0.0, allowed["output"]) is None
    assert difference(torch.tensor([0.0, 1e-3, 4.0]), expected["output"], 0.0, 0.0, allowed["output"]) is not None
    assert difference(torch.tensor([0, 0]), expected["index"], 0.0, 0.0, allowed["index"]) is None
    assert difference(torch.tensor([2, 1]), expected["index"], 0.0, 0.0, allowed["index"]) is not None


def test_slack_is_no_more_than_rounding_but_where_the_element_itself_is_open():
    expected = {"output": torch.tensor([1.0, 2.0])}
    allowed = slack(expected, [{"output": torch.tensor([2.0, 2.0])}], 0.0)
    assert allowed["output"].tolist() == pytest.approx([1.1, 0.02])
