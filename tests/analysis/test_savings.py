"""What a copy at the origin is said to save, against the program with that copy in it."""

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stridewise
from stridewise.results import Report

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6}
SAVING = re.compile(r"(\d+) cop(?:y|ies) of ([\d.]+) (k?M?B) a step instead of (\d+) that move ([\d.]+) (k?M?B)")


class Program(nn.Module):
    """With `copied`, `.contiguous()` stands where the advice on `payer` wants it."""

    payer = "layer_norm"

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__()
        self.copied = copied

    def in_order(self, x: Tensor) -> Tensor:
        return x.contiguous() if self.copied else x


class NormOfChannels(Program):
    """Swaps before and behind: the gradient that reaches the norm lies as its input does, where one reaches it so."""

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__(copied=copied)
        self.convs = nn.ModuleList(nn.Conv1d(16, 16, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(self.in_order(conv(x).transpose(1, 2))).transpose(1, 2)
        return x.contiguous()


class NormOfStream(Program):
    """The loss is row-major, so that the norm's gradient arrives in order."""

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__(copied=copied)
        self.start, self.norm = nn.Conv1d(16, 16, 1), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.in_order(self.start(x).transpose(1, 2))) * 2


class NormsOfStream(Program):
    """Several payers of one stream."""

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__(copied=copied)
        self.start, self.norms = nn.Conv1d(16, 16, 1), nn.ModuleList(nn.LayerNorm(16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.in_order(self.start(x).transpose(1, 2))
        return self.norms[0](y) + self.norms[1](y) + self.norms[2](y)


class ConvOfSwapped(Program):
    """A convolution behind a linear layer; what follows hands back a gradient that lies as its input does."""

    payer = "conv1d"

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__(copied=copied)
        self.linear, self.conv, self.out = nn.Linear(16, 16), nn.Conv1d(16, 16, 3, padding=1), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.in_order(self.linear(x.reshape(4, 32, 16)).transpose(1, 2)))
        return self.out(y.transpose(1, 2))


class LinearOfSwapped(Program):
    """A linear layer that copies its operand in forward; backward has only a gradient to copy."""

    payer = "linear"

    def __init__(self, *, copied: bool = False) -> None:
        super().__init__(copied=copied)
        self.conv, self.linear = nn.Conv1d(16, 16, 1), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(self.in_order(self.conv(x).transpose(1, 2))).transpose(1, 2)).contiguous()


PROGRAMS = [NormOfChannels, NormOfStream, NormsOfStream, ConvOfSwapped, LinearOfSwapped]


def report_of(program: Program) -> Report:
    x = torch.randn(4, 16, 32)

    def step() -> None:
        program(x).square().mean().backward()

    step()
    with stridewise.record() as recording:
        step()
        recording.step()
    return stridewise.analyze(recording, min_share=0)


def promised(report: Report, payer: str) -> tuple[int, float]:
    """How many copies and bytes there are to be less; none where nothing is said."""
    (finding,) = (f for f in report.findings if f.code in ("SW101", "SW103") and payer in f.message)
    said = SAVING.search(finding.advice or "")
    if said is None:
        return 0, 0
    made, size, unit, replaced, moved, of = said.groups()
    return int(replaced) - int(made), float(moved) * UNITS[of] - float(size) * UNITS[unit]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_much_is_saved_as_is_said(program: type[Program]) -> None:
    before, after = report_of(program()), report_of(program(copied=True))
    assert before.totals.copies is not None
    assert after.totals.copies is not None
    assert before.totals.bytes_moved is not None
    assert after.totals.bytes_moved is not None
    copies, moved = promised(before, program.payer)
    assert before.totals.copies - after.totals.copies == copies
    assert before.totals.bytes_moved - after.totals.bytes_moved == pytest.approx(moved, rel=0.05)


def test_a_gradient_that_lies_as_the_input_does_is_no_copy_of_the_input() -> None:
    before, after = report_of(NormOfChannels()), report_of(NormOfChannels(copied=True))
    assert promised(before, "layer_norm") == (3, pytest.approx(3 * 2 * 4 * 4 * 16 * 32, rel=0.05))

    def gradients(report: Report) -> float:
        norms = (f for f in report.findings if f.code == "SW110" and "layer_norm" in f.message)
        return sum(finding.cost.copies or 0 for finding in norms)

    assert gradients(before) == gradients(after) > 0
