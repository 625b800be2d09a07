"""What happens when a contract is broken: the error, or the warning at the line of the caller."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from stridewise.checks.contracts import origin
from stridewise.checks.contracts.kinds import Kind, can_be_made, meets
from stridewise.checks.contracts.tensors import layout_of
from stridewise.checks.rules import sw408  # which imports this package: nothing of it is named while it is imported
from stridewise.checks.words import call_site
from stridewise.errors import ContractError, LayoutWarning
from stridewise.layout import Layout
from stridewise.recorder.frames import is_foreign_to_program

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.checks.rules.sw408 import Broken

GRADIENT = "the gradient of "
"""What the name of a gradient begins with; no argument has spaces in its name."""
_warned: set[tuple[str, int, str, str]] = set()
"""Where a warning was given: file, line, function and argument."""


class Called(Struct, frozen=True):
    """Which tensor of which function is looked at."""

    function: str
    argument: str


def what_breaks(tensor: Tensor, kind: Kind, other: Tensor | None, called: Called) -> Broken | None:
    """What is wrong with a tensor, None if it is of the kind, or if its class answers for its layout itself."""
    given = layout_of(tensor)
    if given is None:
        return None
    beside = layout_of(other) if other is not None else None
    beside = beside if isinstance(beside, Layout) else None
    broken = sw408.Broken(
        called.function,
        called.argument,
        kind,
        given if isinstance(given, Layout) else None,
        beside,
        instead="" if isinstance(given, Layout) else given,
        is_gradient=called.argument.startswith(GRADIENT),
    )
    if kind.predicate is not None:
        return None if kind.predicate(tensor) else replace(broken, can_convert=False)
    if not isinstance(given, Layout):
        return replace(broken, can_convert=False)
    if meets(kind.name, given, beside):
        return None
    left = origin.where_it_left(tensor, kind, given, beside)
    return replace(broken, can_convert=can_be_made(kind, given, beside), origin=left)


def error_for(broken: Broken) -> ContractError:
    """The error, with its finding."""
    finding = sw408.judge(replace(broken, site=call_site()))
    return ContractError(finding.message, expected=finding.evidence[0], advice=finding.advice, finding=finding)


def complain(broken: Broken, mode: str) -> None:
    """Raise, or warn once at the line of the program that called."""
    if mode != "warn":
        raise error_for(broken)
    frame = _caller()
    place = (frame.f_code.co_filename, frame.f_lineno, broken.function, broken.argument)
    if place in _warned:
        return
    _warned.add(place)
    warnings.warn_explicit(
        str(error_for(broken)),
        LayoutWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__") or "<unknown>",
    )


def _caller() -> FrameType:
    """The nearest frame that is the program's own; else the outermost."""
    frame = sys._getframe(1)
    while is_foreign_to_program(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame
