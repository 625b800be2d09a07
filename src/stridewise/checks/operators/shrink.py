"""The smallest case that still shows a fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement, Case, Described, Outcome

_MOST_TRIES = 120


def smallest(
    found: Outcome,
    described: Described,
    run: Callable[[Case], Outcome],
    same: Callable[[Outcome], bool],
    limit_s: float,
) -> Outcome | None:
    """The outcome of the smallest case for which `same` holds: fewer operands, smaller sizes, a simpler layout.

    `run` runs a case. None if even the case itself does not show it again, as of a fault that comes and goes.
    """
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import NoSuchExample

    if not same(run(found.case)):
        return None
    end = time.monotonic() + limit_s
    best: list[tuple[Any, Outcome]] = []

    def shows(case: Case) -> bool:
        if time.monotonic() > end:
            return False
        outcome = run(case)
        if not same(outcome):
            return False
        best.append((_weight(case, described), outcome))
        return True

    options = settings(
        max_examples=_MOST_TRIES,
        database=None,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        find(_cases(found.case, described), shows, settings=options)
    except NoSuchExample:
        pass
    best.append((_weight(found.case, described), found))
    return min(best, key=lambda entry: entry[0])[1]


def _cases(case: Case, described: Described) -> Any:
    """Cases that have less of what a case has: sizes up to its own, and each operand's arrangement or a part of it."""
    from hypothesis import strategies as st

    sizes = {operand.name: case.sizes.get(operand.name, operand.sizes) for operand in described.operands}
    linked = sorted({size for own in sizes.values() for size in own if size > 1})

    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        smaller = {size: draw(st.integers(1, size)) for size in linked}
        cut = {name: tuple(smaller.get(size, size) for size in own) for name, own in sizes.items()}
        cut = {
            name: own for name, own in cut.items() if own != next(o.sizes for o in described.operands if o.name == name)
        }
        arrangements = {}
        for name, arrangement in case.arrangements.items():
            if len(case.arrangements) == 1 or draw(st.booleans()):
                arrangements[name] = draw(_parts(arrangement))
        return replace(case, arrangements=arrangements, sizes=cut)

    return cases()


def _parts(arrangement: Arrangement) -> Any:
    """An arrangement with shorter pads; the simplest first."""
    from hypothesis import strategies as st

    def shorter(values: tuple[int, ...] | None) -> Any:
        if values is None or not any(values):
            return st.just(values)
        return st.tuples(*(st.integers(min(1, value), value) for value in values))

    return st.builds(
        lambda before, after: replace(arrangement, before=before, after=after),
        shorter(arrangement.before),
        shorter(arrangement.after),
    )


def _weight(case: Case, described: Described) -> tuple[Any, ...]:
    """What is smaller."""
    sizes = [case.sizes.get(operand.name, operand.sizes) for operand in described.operands]
    pads = sum(
        sum(arrangement.before or ()) + sum(arrangement.after or ()) for arrangement in case.arrangements.values()
    )
    elements = 0
    for own in sizes:
        count = 1
        for size in own:
            count *= size
        elements += count
    return len(case.arrangements), elements, pads, sizes
