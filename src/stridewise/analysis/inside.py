"""Whether strides begin and are paid for inside torch's own code, where no edit of the program comes between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stridewise.analysis.sites import place_of

if TYPE_CHECKING:
    from stridewise.analysis.case import Case
    from stridewise.recording.model import CallLog


def modules_around(log: CallLog, call: int) -> Iterator[int]:
    """The module calls that a logged call was made in, from the inside out."""
    number = log.calls[call].module_call
    while number >= 0:
        yield number
        number = log.module_calls[number].parent


def called_module(log: CallLog, call: int) -> int | None:
    """The module call that the expression at a call's site made: the outermost around the call that is torch's own.

    None where that called no module, or one of the program's own, which has sites inside; or where that is not known.
    """
    found = None
    for number in modules_around(log, call):
        if log.module_calls[number].module not in (log.of_torch or ()):
            break
        found = number
    return found


def is_what_its_site_gives(log: CallLog, call: int) -> bool:
    """Whether a call gave what the expression at its site came to, and not something on the way there in torch."""
    if log.calls[call].via < 0:
        return True
    module = called_module(log, call)
    made = [log.refs[ref].object for ref in log.calls[call].outputs]
    return module is not None and [log.refs[ref].object for _, ref in log.module_calls[module].outputs] == made


def stays_inside(case: Case, copy: int) -> bool:
    """Whether a copy's stream goes from its origin to its payer and never reaches an expression of the program."""
    stream = case.streams[copy]
    if stream is None or stream.origin.kind != "call" or case.log.of_torch is None:
        return False
    if place_of(case.site_of_copy(copy))[:5] != place_of(case.site(stream.origin.call))[:5]:
        return False
    return not any(is_what_its_site_gives(case.log, call) for call in (stream.origin.call, *stream.carriers))


def words_inside(case: Case, copy: int) -> str:
    """What to say of a copy whose stream stays inside."""
    stream = case.streams[copy]
    assert stream is not None
    via = case.site(stream.origin.call).via
    where = f", at {via}" if via else ""
    return (
        f"The order begins inside torch{where}, and is paid for there: no `.contiguous()` of the program comes between."
        " Another form of the operation may not need it."
    )
