"""SW331: `reshape` copies by itself where it has to."""

import torch
from hypothesis import given

from ..texts import findings, fixed, rule_of, run
from .layouts import copies, seen, tensors

SPLIT = "import torch\ndef program(x):\n    return x.contiguous().reshape(*x.shape[:-1], 2, -1)\n"
FLAT = "import torch\ndef program(x):\n    return x.contiguous().flatten(1)\n"


def test_a_copy_goes_where_a_view_does() -> None:
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    assert (copies(run(SPLIT)["program"], x), copies(run(fixed(SPLIT, "SW331"))["program"], x)) == (1, 0)
    every_second = torch.zeros(4, 3, 4)[::2]
    before, after = run(FLAT)["program"], run(fixed(FLAT, "SW331"))["program"]
    assert (copies(before, every_second), copies(after, every_second)) == (1, 0)
    assert (copies(before, x), copies(after, x)) == (1, 1)


@given(x=tensors(ranks=(2, 4)).filter(lambda x: x.numel() > 0))
def test_the_values_are_the_same(x: torch.Tensor) -> None:
    before, after = seen(run(FLAT)["program"], x), seen(run(fixed(FLAT, "SW331"))["program"], x)
    assert (after.values, after.sizes, after.gradient) == (before.values, before.sizes, before.gradient)


def test_it_may_share_memory_and_so_is_not_safe() -> None:
    x = torch.zeros(2, 3, 4).transpose(0, 1)
    assert seen(run(fixed(SPLIT, "SW331"))["program"], x).shares_memory
    assert not seen(run(SPLIT)["program"], x).shares_memory
    assert [edit.safety for edit in findings(SPLIT, "SW331")[0].edits] == ["unsafe"]


def test_it_is_off_by_default() -> None:
    assert not rule_of("SW331").default
