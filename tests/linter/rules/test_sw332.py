"""SW332: the copy of an expanded view is as large as what it stands for."""

import pytest
import torch

from stridewise.linter.rule import Fires

from ..texts import findings, rule_of, run


@pytest.mark.parametrize("example", rule_of("SW332").fires)
def test_every_repetition_is_written(example: Fires) -> None:
    written = run(example.source)["program"]()
    assert written.untyped_storage().nbytes() == 64 * 3 * 4


def test_the_view_takes_no_memory_and_operators_take_the_view() -> None:
    x = torch.arange(3.0).reshape(1, 3)
    view = x.expand(64, -1)
    assert view.untyped_storage().nbytes() == 3 * 4
    assert torch.equal(view + 1, view.contiguous() + 1)


@pytest.mark.parametrize("made", ["x.expand(4, 3)", "x.expand_as(y)", "torch.broadcast_to(x, (4, 3))"])
def test_it_looks_through_a_name(made: str) -> None:
    text = f"import torch\ndef f(x, y):\n    z = {made}\n    return z.contiguous()\n"
    (finding,) = findings(text, "SW332")
    assert finding.origin is not None
    assert finding.origin.line == 3
    assert not finding.edits


def test_it_is_off_by_default() -> None:
    assert not rule_of("SW332").default
