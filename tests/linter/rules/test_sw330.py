"""SW330: `reshape` copies only where `view` could not do without."""

import pytest
import torch
from hypothesis import given

from ..texts import findings, fixed, rule_of, run
from .layouts import copies, seen, tensors

TEXT = "import torch\ndef program(x):\n    return x.contiguous().view(x.shape[0], -1, 1)\n"


def test_a_copy_goes_where_a_view_does() -> None:
    before, after = run(TEXT)["program"], run(fixed(TEXT, "SW330"))["program"]
    merged = torch.zeros(2, 3, 8)[:, :, :4].transpose(0, 1)[:, :1]
    assert (copies(before, merged), copies(after, merged)) == (1, 0)
    assert (copies(before, torch.zeros(2, 3, 4).mT), copies(after, torch.zeros(2, 3, 4).mT)) == (1, 1)


@given(x=tensors(ranks=(2, 4)).filter(lambda x: x.numel() > 0))
def test_the_values_are_the_same(x: torch.Tensor) -> None:
    before, after = seen(run(TEXT)["program"], x), seen(run(fixed(TEXT, "SW330"))["program"], x)
    assert (after.values, after.sizes, after.gradient) == (before.values, before.sizes, before.gradient)


def test_it_may_share_memory_and_so_is_not_safe() -> None:
    x = torch.zeros(2, 3, 8)[:, :, :4]
    assert seen(run(fixed(TEXT, "SW330"))["program"], x[:, 0]).shares_memory
    assert not seen(run(TEXT)["program"], x[:, 0]).shares_memory
    assert [edit.safety for edit in findings(TEXT, "SW330")[0].edits] == ["unsafe"]


@pytest.mark.parametrize("call", ["view(torch.int32)", "view(x.dtype)", "view(dtype=dtype)", "reshape(-1)"])
def test_it_is_quiet_about_other_views(call: str) -> None:
    assert findings(f"import torch\ndef f(x, dtype):\n    return x.contiguous().{call}\n", "SW330") == ()


def test_a_comment_is_not_lost() -> None:
    text = "import torch\ndef f(x):\n    return (x.contiguous()  # for the view\n            .view(-1))\n"
    (finding,) = findings(text, "SW330")
    assert finding.edits == ()


def test_it_is_off_by_default() -> None:
    assert not rule_of("SW330").default
