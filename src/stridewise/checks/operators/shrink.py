"""The smallest case that still shows a fault."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement, Case, Described, Outcome
from stridewise.checks.operators.naming import named

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

_MOST_TRIES = 120
_PLAIN = Arrangement("contiguous")
_alone = threading.RLock()
Sizes = Mapping[str, tuple[int, ...]]


def smallest(
    found: Outcome,
    described: Described,
    run: Callable[[Case], Outcome],
    same: Callable[[Outcome], bool],
    limit_s: float,
) -> Outcome | None:
    """The outcome of the smallest case for which `same` holds: fewer operands, simpler layouts, smaller sizes.

    `run` runs a case. None if even the case itself does not show it again, as of a fault that comes and goes.
    """
    search = _Search(described, run, same, time.monotonic() + limit_s)
    again = run(found.case)
    if not same(again):
        return None
    search.best = again
    # Sizes that are equal most often have to be; once they are small, each may still be smaller alone.
    for linked in (True, False):
        search.over(_cases(search.best.case, described, linked=linked))
    return search.best


class _Search:
    """Runs cases, each once, and keeps the smallest for which something holds."""

    best: Outcome

    def __init__(
        self, described: Described, run: Callable[[Case], Outcome], same: Callable[[Outcome], bool], end: float
    ) -> None:
        self._described, self._run, self._same, self._end = described, run, same, end
        self._known: dict[str, bool] = {}

    def over(self, cases: SearchStrategy[Case]) -> None:
        """Look among these."""
        from hypothesis import HealthCheck, Phase, Verbosity, find, settings
        from hypothesis.errors import FailedHealthCheck, NoSuchExample

        options = settings(
            max_examples=_MOST_TRIES,
            database=None,
            derandomize=True,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        # Inside a test of hypothesis another search is refused: then it stays as large as it was found.
        with _alone, _folder_elsewhere(), contextlib.suppress(NoSuchExample, FailedHealthCheck):
            find(cases, self._holds, settings=options)

    def _holds(self, case: Case) -> bool:
        # What hypothesis asks twice has to have one answer, also of what comes and goes, and when time is over.
        key = repr(case)
        if key not in self._known:
            self._known[key] = time.monotonic() < self._end and self._shows(case)
        return self._known[key]

    def _shows(self, case: Case) -> bool:
        outcome = self._run(case)
        if not self._same(outcome):
            return False
        if _weight(case, self._described) < _weight(self.best.case, self._described):
            self.best = outcome
        return True


@contextlib.contextmanager
def _folder_elsewhere() -> Iterator[None]:
    """hypothesis keeps what it read of a program's constants in a folder: not in the program's."""
    from hypothesis import configuration

    before = getattr(configuration, "__hypothesis_home_directory", None)
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)


# -------------------------------------------------------------------------------------------------- what to look among


def _cases(case: Case, described: Described, *, linked: bool) -> SearchStrategy[Case]:
    """Cases that have less of what a case has. The simplest are drawn first, and it is one of them.

    `linked`: dimensions of equal sizes keep equal ones.
    """
    from hypothesis import strategies as st

    sample = {operand.name: operand.sizes for operand in described.operands}
    own = {name: case.sizes.get(name, sizes) for name, sizes in sample.items()}
    is_fixed = {operand.name for operand in described.operands if operand.role in ("parameter", "buffer")}

    @st.composite
    def cases(draw: DrawFn) -> Case:
        arrangements = {}
        for name, arrangement in case.arrangements.items():
            part = draw(_parts(arrangement, len(own[name])))
            if part is not None:
                arrangements[name] = part
        gradient = case.gradient
        if gradient is not None and gradient != _PLAIN:
            gradient = draw(st.sampled_from([_PLAIN, gradient]))
        sizes = draw(_smaller({name: own[name] for name in own if name not in is_fixed}, linked=linked))
        return replace(
            case,
            arrangements=arrangements,
            gradient=gradient,
            sizes={name: sizes[name] for name in sizes if sizes[name] != sample[name]}
            | {name: given for name, given in case.sizes.items() if name in is_fixed},
        )

    return cases()


def _smaller(own: Sizes, *, linked: bool) -> SearchStrategy[dict[str, tuple[int, ...]]]:
    """Sizes from 1 on, 0 where they are; in the end those that are given."""
    from hypothesis import strategies as st

    if not linked:
        return st.fixed_dictionaries(
            {name: st.tuples(*(st.integers(min(1, size), size) for size in sizes)) for name, sizes in own.items()}
        )
    distinct = sorted({size for sizes in own.values() for size in sizes})
    return st.fixed_dictionaries({size: st.integers(min(1, size), size) for size in distinct}).map(
        lambda less: {name: tuple(less[size] for size in sizes) for name, sizes in own.items()}
    )


def _parts(arrangement: Arrangement, ndim: int) -> SearchStrategy[Arrangement | None]:
    """A part of what an arrangement does, None for nothing of it, all of it last."""
    from hypothesis import strategies as st

    def up_to(values: tuple[int, ...] | None, least: int) -> SearchStrategy[tuple[int, ...] | None]:
        if values is None or all(value == least for value in values):
            return st.none()
        return st.tuples(*(st.integers(least, value) for value in values)).map(
            lambda found: found if any(value != least for value in found) else None
        )

    def build(order: Any, steps: Any, before: Any, after: Any, expanded: Any, rest: Any) -> Arrangement | None:
        part = Arrangement("", order, steps, before, after, expanded, *rest)
        if part == Arrangement(""):
            return None
        return arrangement if replace(part, name=arrangement.name) == arrangement else named(part, ndim)

    rest = st.tuples(
        st.sampled_from(list(dict.fromkeys([None, arrangement.windows]))),
        st.sampled_from(sorted({False, arrangement.odd_ones})),
        st.integers(0, arrangement.offset),
    )
    return st.builds(
        build,
        st.sampled_from(list(_orders(arrangement.order))),
        up_to(arrangement.steps, 1),
        up_to(arrangement.before, 0),
        up_to(arrangement.after, 0),
        st.sampled_from(list(_subsets(arrangement.expanded))),
        rest,
    )


def _orders(order: tuple[int, ...] | None) -> Iterator[tuple[int, ...] | None]:
    """Memory orders, the simplest first: that of the indices, two dimensions in each other's place, the given one."""
    yield None
    if order is None or order[0] < 0:
        if order is not None:
            yield order
        return
    plain = tuple(range(len(order)))
    for dim in reversed(plain[1:]):
        swapped = (*plain[: dim - 1], dim, dim - 1, *plain[dim + 1 :])
        if swapped != order:
            yield swapped
    yield order


def _subsets(dims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """None of them, each alone, all."""
    yield ()
    if len(dims) > 1:
        yield from ((dim,) for dim in dims)
    if dims:
        yield dims


def _weight(case: Case, described: Described) -> tuple[Any, ...]:
    """What is smaller: fewer operands in a layout of their own, then fewer elements, then less in the layouts."""
    sizes = [case.sizes.get(operand.name, operand.sizes) for operand in described.operands]
    layouts = [*case.arrangements.values()]
    if case.gradient is not None and case.gradient != _PLAIN:
        layouts.append(case.gradient)
    return (
        len(layouts),
        sum(prod(own) for own in sizes),
        sum(_complexity(arrangement) for arrangement in layouts),
        sizes,
    )


def _complexity(arrangement: Arrangement) -> int:
    order = arrangement.order or ()
    return (
        sum(1 for at, dim in enumerate(order) if dim != at)
        + sum(step - 1 for step in arrangement.steps or ())
        + sum((*(arrangement.before or ()), *(arrangement.after or ())))
        + len(arrangement.expanded)
        + (arrangement.windows is not None)
        + arrangement.odd_ones
        + arrangement.offset
    )
