"""Which expression `copy-before-kernel` puts the copy behind, and when it leaves a call alone."""

from pathlib import Path

import pytest

from stridewise.repair.candidate import Candidate, Kind
from stridewise.repair.kinds import copy_before_kernel
from stridewise.repair.rules import sw109

from .running import context_of, edited, load, proposals, slow_calls

KIND = Kind.from_module(copy_before_kernel)
PROGRAM = """
import torch as th
import torch.nn.functional as F
x = th.randn(2, 8, 6, 4)
scale = th.randn(8, 4, 6)
idx = th.tensor([1, 0])
sizes = (2,)
class Net(th.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = th.nn.GELU()
    def forward(self, x):
        y = x.transpose(2, 3)
        return self.act(y)
model = Net()
def program():
    y = x.transpose(2, 3)
    return {expression}
"""


def proposed(folder: Path, expression: str, format: str = "contiguous") -> list[str]:
    """The expression with each of the edits."""
    before = PROGRAM.replace("{expression}", expression)
    module = load(folder, before)
    context = context_of(module)
    context.slow = slow_calls(module.program, format)
    found = [edited(context, candidate) for candidate in proposals(KIND, context)]
    return [text.rpartition("    return ")[2].strip() for text in found]


@pytest.mark.parametrize(
    ("expression", "after"),
    [
        ("y.sum(0)", "y.contiguous().sum(0)"),
        ("th.sum(y, 0)", "th.sum(y.contiguous(), 0)"),
        ("th.sum(input=y, dim=0)", "th.sum(input=y.contiguous(), dim=0)"),
        ("F.gelu((y))", "F.gelu((y.contiguous()))"),
        ("F.gelu(input=y)", "F.gelu(input=y.contiguous())"),
        ("y + scale", "y.contiguous() + scale"),
        ("scale * y", "scale * y.contiguous()"),
        ("y * y", "y.contiguous() * y.contiguous()"),
        ("2 - y", "2 - y.contiguous()"),
        ("2 * y", "2 * y.contiguous()"),
        ("-y", "-y.contiguous()"),
        ("y > 0", "y.contiguous() > 0"),
        ("y[:, idx]", "y.contiguous()[:, idx]"),
        ("th.cat([scale[None], y], dim=0)", "th.cat([scale[None], y.contiguous()], dim=0)"),
        ("th.maximum(scale, other=y)", "th.maximum(scale, other=y.contiguous())"),
    ],
)
def test_the_operand_is_copied(expression: str, after: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, expression) == [after]


@pytest.mark.parametrize(
    "expression",
    [
        "th.cat([*y], dim=0)",
        "F.interpolate(*(y, sizes * 2))",
        "th.Tensor.sum(y, 0) if sizes else None",
    ],
)
def test_what_it_does_not_understand_it_leaves(expression: str, tmp_path: Path) -> None:
    for text in proposed(tmp_path, expression):
        assert text == "th.Tensor.sum(y.contiguous(), 0) if sizes else None"


def test_channels_last_is_written_as_the_file_names_torch(tmp_path: Path) -> None:
    after = "F.max_pool2d(y.contiguous(memory_format=th.channels_last), 2)"
    assert proposed(tmp_path, "F.max_pool2d(y, 2)", "channels_last") == [after]


def test_what_a_module_is_given_where_it_is_called(tmp_path: Path) -> None:
    module = load(tmp_path, PROGRAM.replace("{expression}", "model(x)"))
    context = context_of(module)
    texts = [edited(context, candidate) for candidate in proposals(KIND, context)]
    assert ["self.act(y.contiguous())" in text for text in texts] == [True]


def test_only_calls_that_pay_for_a_copy(tmp_path: Path) -> None:
    module = load(tmp_path, PROGRAM.replace("{expression}", "y.sum(0)"))
    context = context_of(module)
    (slow,) = context.slow
    candidate: Candidate
    (candidate,) = proposals(KIND, context)
    assert candidate.findings == (sw109.fingerprint_of(slow),)
    assert not candidate.removes_copies
    context.slow = slow_calls(module.program, "channels_last")
    assert proposals(KIND, context) != []
    context.slow = ()
    assert proposals(KIND, context) == []
