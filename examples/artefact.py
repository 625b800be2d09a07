"""Ask an exported program what it does with layouts that it was not made for, and guard it."""

import logging
import warnings

import torch

import stridewise


class Scores(torch.nn.Module):
    """Takes any layout in eager mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous().view(-1).softmax(0)


class Scale(torch.nn.Module):
    """Does one thing or another, by layout."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous():
            return 2 * x
        return 3 * x


warnings.simplefilter("ignore")  # torch.export warns of its own use of torch
logging.disable(logging.WARNING)
example = torch.randn(4, 6)

program = torch.export.export(Scores(), (example,))
result = stridewise.check_export(program, model=Scores())
print(result)

guarded = stridewise.guard_artefact(program, result)
transposed = torch.randn(6, 4).t()
assert torch.equal(guarded(transposed), Scores()(transposed))
print("\nWith the guard the program takes a transposed matrix.\n")

branch = torch.export.export(Scale(), (example,))
print(stridewise.check_export(branch, model=Scale()))
