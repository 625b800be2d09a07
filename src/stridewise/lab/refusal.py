"""Operators that refuse what they are given: that is something seen, as a result is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

Result = TypeVar("Result")
_MEMORY = ("out of memory", "allocate memory", "enough memory")


class Refused(Struct, frozen=True):
    """Stands for the result of a call that raised."""

    said: str
    """`raises RuntimeError: …`, in a line."""
    error: RuntimeError


def tried(run: Callable[[], Result]) -> Result | Refused:
    """What a call gives, or how it refused.

    A refusal is a plain RuntimeError or NotImplementedError, as torch's checks of operands raise; those of other
    types, as of a device that fails, and those about memory say nothing of operands, and go through.
    """
    try:
        return run()
    except RuntimeError as error:
        if type(error) not in (RuntimeError, NotImplementedError) or any(words in str(error) for words in _MEMORY):
            raise
        line = " ".join(str(error).partition("\n")[0].split())[:100]
        error.with_traceback(None)  # whose frames would keep operands alive
        return Refused(f"raises {type(error).__name__}: {line}", error)
