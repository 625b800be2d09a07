"""What the summary of a session says of recordings that do not hold all."""

from __future__ import annotations

import pytest

from stridewise.analysis.notes import INSIDE_COMPILED
from stridewise.recording.build import LEFT_OUT
from stridewise.results import numbers


def tell(terminal: pytest.TerminalReporter, told: list[list[str]]) -> None:
    """Say it once, with how many tests it is true of; `told` are the notes of each."""
    compiled = sum(any(note.endswith(INSIDE_COMPILED) for note in notes) for notes in told)
    left_out = sum(LEFT_OUT in notes for notes in told)
    terminal.section("layout")
    if compiled:
        verb = "calls" if compiled == 1 else "call"
        terminal.write_line(
            f"{numbers.count(compiled, 'recorded test')} {verb} code of torch.compile: {INSIDE_COMPILED} "
            "`stridewise run --compiled` does."
        )
    if left_out:
        terminal.write_line(
            f"In {numbers.count(left_out, 'recorded test')} threads were at work that ran before: what they did there "
            "is left out."
        )
