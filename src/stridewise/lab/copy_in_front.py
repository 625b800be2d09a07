"""The one claim that many experiments test, each with another operator."""

from stridewise.lab.experiment import Claim


def copy_in_front(correct: str) -> Claim:
    """C88, with what is right about the operator that an experiment tests it with."""
    return Claim(
        "4.2",
        "In front of a single call, such as `bmm` or `conv2d`, put `.contiguous()`: then it takes its best path.",
        correct,
    )
