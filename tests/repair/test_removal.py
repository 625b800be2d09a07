"""What goes with a statement that is taken out: an `if` that only looked whether it was needed."""

from pathlib import Path

import pytest

from stridewise.repair.candidate import Kind
from stridewise.repair.kinds import drop_copy

from .running import context_of, edited, load, proposals

DROP = Kind.from_module(drop_copy)
PROGRAM = """
import torch
x = torch.randn(8, 64, 32)
def look():
    return True
def program():
    y = x.transpose(1, 2)
    {body}
    return y * 2
"""


def indented(body: str) -> str:
    return body.replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("if not y.is_contiguous():\n    y = y.contiguous()", None),
        ("if y.stride(-1) != 1 and y.dim() == 3:\n    # kernels want it\n    y = y.contiguous()", None),
        ("if y.dim() == 3:\n    if not y.is_contiguous():\n        y = y.contiguous()", None),
        ("if look():\n    y = y.contiguous()", "if look():\n    pass"),
        ("if (z := y.dim()) == 3:\n    y = y.contiguous()", "if (z := y.dim()) == 3:\n    pass"),
        (
            "if not y.is_contiguous():\n    y = y.contiguous()\nelse:\n    y = y + 1",
            "if not y.is_contiguous():\n    pass\nelse:\n    y = y + 1",
        ),
        (
            "if y.dim() == 2:\n    y = y + 1\nelif not y.is_contiguous():\n    y = y.contiguous()",
            "if y.dim() == 2:\n    y = y + 1\nelif not y.is_contiguous():\n    pass",
        ),
        ("if not y.is_contiguous():\n    z = 1\n    y = y.contiguous()", "if not y.is_contiguous():\n    z = 1"),
    ],
)
def test_an_if_goes_with_the_only_statement_that_it_holds(body: str, left: str | None, tmp_path: Path) -> None:
    before = PROGRAM.format(body=indented(body))
    after = PROGRAM.replace("    {body}\n", "") if left is None else PROGRAM.format(body=indented(left))
    context = context_of(load(tmp_path, before))
    assert [edited(context, candidate) for candidate in proposals(DROP, context)] == [after]
