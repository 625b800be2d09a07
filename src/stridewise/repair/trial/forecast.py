"""How good a plan's forecast was, and where it was wrong."""

from collections import Counter, defaultdict
from statistics import median

from msgspec import Struct

from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.findings import Site
from stridewise.repair.candidate import Candidate
from stridewise.repair.plan.costs import Plan, key_of
from stridewise.repair.refused import Refused
from stridewise.repair.trial.arms import Arms
from stridewise.repair.trial.workload import Workload
from stridewise.results import Measurement
from stridewise.results.numbers import duration

OFF = 0.2
"""A forecast of a step's time that is wrong by more than this share of what was measured is told to be."""
AS_LONG_NS = 1000
"""A change by less is none: recordings don't tell it."""
STEPS = 5
"""How many steps of either version are recorded to find where."""

_COPY = "torch.Tensor.contiguous"


class Forecast(Struct, frozen=True):
    """What was forecast of a trial."""

    ratio: float
    """Time with the change over time without it."""
    off: str | None
    """What to say if it was wrong by more than a fifth: what was measured, as a speed, and where they differ."""


def forecast_of(
    candidate: Candidate,
    figures: Measurement | None,
    step_ns: float | None,
    where: tuple[Workload, Arms] | None,
) -> Forecast | None:
    """What was forecast of a candidate that comes from a plan; if it was wrong, where, if there is time to look."""
    plan = candidate.plan
    if plan is None or figures is None or not step_ns:
        return None
    ratio = max(0.0, 1 - plan.saving_ns / step_ns)
    measured = figures.ratio
    if measured is None or abs(measured - ratio) <= OFF * measured:
        return Forecast(ratio, None)
    said = f"measured {1 / measured:.2f}x"
    try:
        gap = _largest_gap(plan, candidate, *where) if where is not None else None
    except Refused:
        gap = None
    return Forecast(ratio, said if gap is None else f"{said}; they differ most at {_in_words(*gap)}")


def _in_words(site: Site, forecast_ns: float, measured_ns: float) -> str:
    where = f"{site.file}:{site.line}" if site.file else site.module or site.expression or "calls inside torch"
    return f"{where}, forecast to take {_change(forecast_ns)} a step, where it takes {_change(measured_ns)}"


def _change(ns: float) -> str:
    if abs(ns) < AS_LONG_NS:
        return "as long as before"
    return f"{duration(abs(ns))} {'less' if ns < 0 else 'more'}"


def _largest_gap(plan: Plan, candidate: Candidate, workload: Workload, arms: Arms) -> tuple[Site, float, float] | None:
    """The place where the forecast and recordings differ most: what each says that the plan changes there.

    None if the calls of the two versions can't be matched, or ran on a device: their times are not their kernels'.
    """
    with workload.aside():
        before = Case(workload.recorded(STEPS).trace)
        arms.arm([candidate]).enter()
        try:
            after = Case(workload.recorded(STEPS).trace)
        finally:
            arms.put_back()
    steps = _steps(before), _steps(after)
    if before.trace.device_events or not all(steps):
        return None
    measured: dict[tuple[object, ...], float] = defaultdict(float)
    sites: dict[tuple[object, ...], Site] = {}
    copies = Counter((key_of(place.site), place.function) for place in plan.conversions)
    then, now = (_times(case, found) for case, found in zip((before, after), steps, strict=True))
    at = 0
    for call, was_ns in zip(steps[0][0], then, strict=True):
        site, function = before.site(call), before.function(call)
        key = key_of(site)
        behind = copies[key, function]
        mine = steps[1][0][at : at + 1 + behind]
        if [after.function(one) for one in mine] != [function, *[_COPY] * behind]:
            return None
        sites.setdefault(key, site)
        measured[key] += sum(now[at : at + 1 + behind]) - was_ns
        at += 1 + behind
    forecast = {key_of(change.site): change.ns for change in plan.changes}
    gaps = [(site, forecast.get(key, 0.0), measured[key]) for key, site in sites.items()]
    return max(gaps, key=lambda gap: abs(gap[1] - gap[2]), default=None)


def _steps(case: Case) -> list[list[int]]:
    """The calls of each step but the first; none unless all steps make the same ones."""
    starts = [step.start_ns for step in case.trace.steps]
    found: list[list[int]] = [[] for _ in starts]
    for call in range(len(case.log.calls)):
        mark = case.op_of_call(call)
        step = None if mark is None else step_of(case.trace, starts, case.trace.ops.start_ns[mark])
        if step is not None:
            found[step].append(call)
    kinds = {tuple(case.function(call) for call in calls) for calls in found}
    return found[1:] if len(kinds) == 1 else []


def _times(case: Case, steps: list[list[int]]) -> list[float]:
    """Nanoseconds of each call of a step, and of its backward: the median of steps."""
    return [median(_time(case, call) for call in calls) for calls in zip(*steps, strict=True)]


def _time(case: Case, call: int) -> int:
    mark, ops = case.op_of_call(call), case.trace.ops
    assert mark is not None
    return sum(ops.end_ns[op] - ops.start_ns[op] for op in (mark, *case.nodes.get(call, ())))


__all__ = ["Forecast", "forecast_of"]
