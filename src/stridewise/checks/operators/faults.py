"""What was wrong with runs in some layout, held against one of contiguous operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from stridewise.checks.operators.case import Fault
from stridewise.checks.operators.compare import difference
from stridewise.checks.operators.runs import Ran

if TYPE_CHECKING:
    from torch import Tensor


def harm(ran: Ran, written: set[str], reference: Ran | None = None) -> Iterator[Fault]:
    """What was written that is not to be written; what the reference writes too is its business."""
    for name, watched in ran.operands.items():
        damage = watched.damage()
        if damage:
            yield Fault("writes outside", name, damage.words)
        elif name not in written and watched.is_changed():
            same = reference.operands.get(name) if reference is not None else None
            if same is None or not same.is_changed():
                yield Fault("writes outside", name, "it is only read when it is contiguous, and was written")


def compared(
    runs: Sequence[Mapping[str, Tensor]],
    wanted: Mapping[str, Tensor],
    tolerance: float,
    usual: Mapping[str, float],
    slack: Mapping[str, Tensor] | None = None,
) -> Iterator[Fault]:
    """Results of two runs, with other canaries each, that are not what they should be.

    `usual` is the largest magnitude of each result for the sample; `slack` what else is allowed, by element.
    """
    for name, expected in wanted.items():
        one, other = (run.get(name) for run in runs)
        if one is None or other is None:
            yield Fault("wrong values", name, "there is none", 1.0)
            continue
        more = None if slack is None else slack.get(name)
        allowed = tolerance, usual.get(name, 0.0), more
        wrong = [difference(result, expected, *allowed) for result in (one, other)]
        worst = max((entry for entry in wrong if entry is not None), key=lambda entry: entry.share, default=None)
        if worst is None:
            continue
        varies = one.shape != other.shape or difference(one, other, tolerance, usual.get(name, 0.0)) is not None
        read = ", and what lies around an operand decides it: it reads memory outside of them" if varies else ""
        yield Fault("wrong values", name, worst.detail + read, worst.share, varies)


def without_effect(ran: Ran, reference: Ran, written: set[str]) -> Iterator[Fault]:
    """Operands that it writes when they are contiguous, and left as they were."""
    for name in sorted(written):
        if reference.operands[name].is_changed() and not ran.operands[name].is_changed():
            yield Fault("does nothing", name, "it still holds what it held before", 1.0)


def distinct(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """One fault of a kind for each result; where nothing was written it is not said that values are wrong as well."""
    found: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        found.setdefault((fault.verdict, fault.what), fault)
    idle = {what for verdict, what in found if verdict == "does nothing"}
    return tuple(
        fault
        for (verdict, what), fault in found.items()
        if not (verdict == "wrong values" and (what in idle or (idle and what.startswith("output"))))
    )
