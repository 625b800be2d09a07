"""A plan puts tensors in order where that makes the whole step cheapest, and its forecast is held against the trial."""

import itertools
from collections.abc import Callable
from math import inf, prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.costs import Costs
from stridewise.repair.cut import Labelling
from stridewise.repair.kinds import step_plan
from stridewise.repair.options import Options
from stridewise.repair.plan import _Builder, _Walk
from stridewise.repair.trial import session as sessions
from stridewise.repair.trial.capture import capture
from stridewise.repair.trial.costs import measure
from stridewise.repair.trial.replay import Arm
from stridewise.results import Trial

from .programs import FAULTS, HEALTHY
from .running import context_of, edited, load
from .simulated import Costs as SimulatedCosts
from .test_session import repaired

HEAD = "import torch\nx = torch.randn(32, 64, 128)\ny = torch.randn(32, 64, 128)\n"

# ----------------------------------------------------------------------------------------------------------------- cut

nanoseconds = st.integers(0, 20)
variables = st.integers(0, 5)


@given(
    costs=st.lists(st.tuples(variables, nanoseconds, nanoseconds), max_size=8),
    pairs=st.lists(st.tuples(variables, variables, nanoseconds | st.just(inf)), max_size=10),
    all_of=st.lists(st.tuples(st.sets(variables, min_size=1), nanoseconds), max_size=3),
    fixed=st.sets(variables, max_size=2),
)
def test_a_cut_is_as_cheap_as_the_best_of_all_labels(costs, pairs, all_of, fixed) -> None:
    labelling = Labelling()
    for variable, zero, one in costs:
        labelling.cost(variable, zero=zero, one=one)
    for variable in fixed:
        labelling.cost(variable, one=inf)
    for first, second, cost in pairs:
        labelling.pair(first, second, cost)
    for number, (members, gain) in enumerate(all_of):
        labelling.all_of(f"all of {number}", members, gain)

    def price(ones: set[Any]) -> float:
        total = sum(one if variable in ones else zero for variable, zero, one in costs)
        total += sum(inf for variable in fixed if variable in ones)
        total += sum(cost for first, second, cost in pairs if first != second and second in ones and first not in ones)
        return total + sum(gain for members, gain in all_of if not members <= ones)

    everything = [set(some) for count in range(7) for some in itertools.combinations(range(6), count)]
    best = min(map(price, everything))
    found = {variable for variable in labelling.ones() if isinstance(variable, int)}
    assert price(found) == best
    assert len(found) == min(len(ones) for ones in everything if price(ones) == best)


# -------------------------------------------------------------------------------------------------------------- plans


def proposal(context: Context) -> Candidate | None:
    found = list(step_plan.candidates(context))
    assert len(found) <= 1
    return found[0] if found else None


def lines(folder: Path, body: str) -> list[str]:
    """The lines of a program that the plan for it changes."""
    source = HEAD + body
    context = context_of(load(folder, source))
    candidate = proposal(context)
    if candidate is None:
        return []
    return [line.strip() for line in edited(context, candidate).splitlines() if line not in source.splitlines()]


def test_at_the_origin(tmp_path: Path) -> None:
    body = """
def program():
    a = x.transpose(1, 2)
    return a.exp(), a.sin() + 1
"""
    assert lines(tmp_path, body) == ["a = x.transpose(1, 2).contiguous()"]


def test_behind_a_later_and_smaller_tensor(tmp_path: Path) -> None:
    body = """
def program():
    a = x.transpose(1, 2)
    b = a[:4]
    return b.exp(), b.sin(), b.cos()
"""
    assert lines(tmp_path, body) == ["b = a[:4].contiguous()"]


def test_two_streams_are_decided_each_for_itself(tmp_path: Path) -> None:
    body = """
def program():
    a = x.transpose(1, 2)
    b = y.transpose(1, 2)
    return a.exp(), a.sin(), b.exp()
"""
    assert lines(tmp_path, body) == ["a = x.transpose(1, 2).contiguous()"]


def test_one_place_is_decided_for_all_calls_that_it_makes(tmp_path: Path) -> None:
    body = """
def act(z):
    b = z.transpose(1, 2)
    return b.exp()
def program():
    b = act(x)
    return b.sin(), act(y).amax(), act(y).amax()
"""
    assert lines(tmp_path, body) == ["b = z.transpose(1, 2).contiguous()"]


def test_a_copy_that_the_program_asks_for_is_free_behind_one(tmp_path: Path) -> None:
    body = """
def program():
    a = x.transpose(1, 2)
    return a.contiguous() + 1, a.exp()
"""
    assert lines(tmp_path, body) == ["a = x.transpose(1, 2).contiguous()"]


def test_what_would_be_out_of_order_behind_is_put_in_order_too(tmp_path: Path) -> None:
    body = """
def program():
    a = x.transpose(1, 2)
    b = a[:1].transpose(1, 2)
    return a.exp(), a.sin(), b.cos()
"""
    changed = ["a = x.transpose(1, 2).contiguous()", "b = a[:1].transpose(1, 2).contiguous()"]
    assert lines(tmp_path, body) == changed


@pytest.mark.parametrize(
    "body",
    [
        "def program():\n    return x.transpose(1, 2).exp()\n",
        "def program():\n    return x.exp(), x.sin()\n",
        "z = x.transpose(1, 2)\ndef program():\n    return z.exp(), z.sin(), z.cos()\n",
        "def program():\n    a, b = x.transpose(1, 2), y.transpose(1, 2)\n    return a + b\n",
    ],
    ids=["one call", "in order", "what the program is given", "two operands of one call"],
)
def test_nothing_pays(body: str, tmp_path: Path) -> None:
    assert lines(tmp_path, body) == []


BRANCHED = (
    HEAD
    + """
def program():
    a = x.transpose(1, 2)
    b = y.transpose(1, 2)
    c = a * 2
    d = c[:16] + b[:16]
    e = c[:8].transpose(1, 2)
    return d.exp(), d.sin(), e.cos(), torch.softmax(b, 1), c.reshape(-1).sum()
"""
)


def test_no_other_choice_of_places_is_cheaper(tmp_path: Path) -> None:
    context = context_of(load(tmp_path, BRANCHED))
    case = context.case
    calls = [call for call in range(len(case.log.calls)) if context.step_of(call) == 0]
    editable = lambda output: bool(step_plan._edits(context, [output]))  # noqa: E731
    nodes = _Builder(case, set(calls), context.costs, editable).nodes(calls)
    places = sorted({made.place for node in nodes for made in node.made if made.strided})
    some = (set(found) for count in range(len(places) + 1) for found in itertools.combinations(places, count))
    candidate = proposal(context)
    assert candidate is not None
    assert candidate.plan is not None
    assert len(places) > 5
    assert candidate.plan.after_ns == min(_Walk(case, nodes, chosen).total_ns for chosen in some)
    assert candidate.plan.before_ns == _Walk(case, nodes, set()).total_ns
    changed = sum(change.ns for change in candidate.plan.changes)
    assert changed == pytest.approx(-candidate.plan.saving_ns)


def test_without_costs_there_is_no_plan(tmp_path: Path) -> None:
    context = context_of(load(tmp_path, BRANCHED))
    context.costs = Costs()
    assert proposal(context) is None


def test_a_gain_below_a_hundredth_of_the_step_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(load(tmp_path, BRANCHED))
    candidate = proposal(context)
    assert candidate is not None
    assert candidate.plan is not None
    monkeypatch.setattr(step_plan, "LEAST", 1.01 * candidate.plan.saving_ns / (context.report.totals.step_ns or 1))
    assert proposal(context) is None


# -------------------------------------------------------------------------------------------------------------- costs


def measured(step: Callable[[], object]) -> Costs:
    def timer(arm: Arm, times: int) -> float:
        return times * (100.0 if arm.format is None else 40.0)

    return measure(capture(step, everything=True), deadline=1, clock=lambda: 0, timer=timer)[1]


def test_each_call_is_measured_on_operands_in_order_and_as_they_were() -> None:
    x = torch.randn(4, 6, 8)
    costs = measured(lambda: x.mT.sum(0))
    (cost,) = [cost for cost in costs.calls if cost.function == "torch.Tensor.sum"]
    assert (cost.recorded_ns, cost.in_order_ns, cost.inputs) == (100, 40, (((4, 8, 6), (48, 1, 8)),))
    assert [site.expression for site in cost.sites] == ["x.mT.sum(0)"]
    (copy,) = costs.copies
    assert (copy.sizes, copy.strides, copy.dtype, copy.ns) == ((4, 8, 6), (48, 1, 8), "float32", 100)


@pytest.mark.parametrize(
    ("step", "gives"),
    [
        (lambda z: z.exp(), (True,)),
        (lambda z: z.transpose(0, 1), (False,)),
        (lambda z: z[1:], (True,)),
        (lambda z: z[..., 1:], (False,)),
        (lambda z: z.chunk(2, 0), (True, True)),
        (lambda z: z.reshape(-1), (True,)),
        (lambda z: z.contiguous(), (True,)),
        (lambda z: z.to(torch.float64), (True,)),
        (lambda z: torch.cdist(z, z), (True,)),
    ],
)
def test_whether_a_call_gives_tensors_in_order_is_seen(step, gives) -> None:
    operand = torch.randn(4, 6, 8).mT
    (cost,) = measured(lambda: step(operand)).calls
    assert cost.gives_order == gives


def test_no_time_no_costs() -> None:
    x = torch.randn(4, 6, 8)
    signatures = capture(lambda: (x.mT.sum(0), x.mT.contiguous()), everything=True)
    slow, costs = measure(signatures, deadline=0, clock=lambda: 0)
    assert (slow, costs) == ((), Costs())


# ---------------------------------------------------------------------------------------------------------- forecasts


def simulated(factor: float) -> Callable[[Arm, int], float]:
    """What the machine of the trials takes for a call, times some factor."""

    def timer(arm: Arm, times: int) -> float:
        with SimulatedCosts() as costs:
            arm()
        return times * 1000 * costs.total * factor

    return timer


def trial_of_plan(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, factor: float) -> Trial | None:
    def measure_simulated(signatures: Any, **options: Any) -> Any:
        return measure(signatures, timer=simulated(factor), **options)

    monkeypatch.setattr(sessions, "measure", measure_simulated)
    repair = repaired(folder, source, options=Options(time_limit=1e6, only=("step-plan",), min_share=0)).repair
    return repair.trials[0] if repair.trials else None


def test_the_forecast_stands_beside_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of_plan(tmp_path, FAULTS["permuted stream"].source, monkeypatch, 1)
    assert trial is not None
    assert (trial.candidate, trial.verdict, trial.kept) == ("step-plan", "won", True)
    assert trial.forecast == pytest.approx(trial.ratio, rel=0.02)
    assert trial.forecast_off is None
    assert trial.findings


def test_a_wrong_forecast_is_told_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FAULTS["permuted stream"].source
    trial = trial_of_plan(tmp_path, source, monkeypatch, 1e6)
    assert trial is not None
    assert trial.forecast == 0
    assert trial.forecast_off is not None
    assert trial.forecast_off.startswith("forecast 0.00, measured 0.")
    line = 1 + [line.strip() for line in source.splitlines()].index("y = y + norm(y)")
    assert f"most of it at {tmp_path.name}" in trial.forecast_off or f"program.py:{line}" in trial.forecast_off


def test_a_healthy_program_has_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial_of_plan(tmp_path, HEALTHY, monkeypatch, 1) is None
