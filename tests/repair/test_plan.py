"""A plan puts tensors in order where that makes the whole step cheapest, and its forecast is held against the trial."""

import itertools
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.kinds import step_plan
from stridewise.repair.options import Options
from stridewise.repair.plan.costs import Costs
from stridewise.repair.plan.cut import Labelling
from stridewise.repair.plan.step import _Builder, _cheapest, _cut, _Made, _Node, _Walk
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


# -------------------------------------------------------------------------------------------------------------- walks


@st.composite
def steps(draw: st.DrawFn, places: int | None) -> list[_Node]:
    """Calls that take what earlier ones gave; each with a place of its own, or with one of a few."""
    nodes: list[_Node] = []
    for call in range(draw(st.integers(3, 8))):
        strided = [node.call for node in nodes if node.made[0].strided]
        sources = draw(st.lists(st.sampled_from(strided * 2 + [None]), max_size=2)) if call else []
        given = [(source, 0) if source is not None else None for source in sources]
        cost, gain = draw(nanoseconds), draw(st.integers(-9, 9))
        place = call if places is None else draw(st.integers(0, places - 1))
        keeps = draw(st.sampled_from([True, True, True, False, None])) if given else None
        conversion_ns = draw(st.sampled_from([2.0, 5.0, 5.0, inf]))
        is_strided = draw(st.sampled_from([True, True, True, False]))
        nodes.append(
            _Node(
                call=call,
                place=(place,),
                recorded_ns=cost,
                in_order_ns=cost - (abs(gain) if len(set(given)) > 1 else gain),
                sources=tuple(given),
                determining=given[0] if given else None,
                made=(_Made((place, 0, 0, 0), is_strided, keeps, conversion_ns),),
            )
        )
    return nodes


def choices(nodes: list[_Node]) -> list[set[Any]]:
    places = sorted({made.place for node in nodes for made in node.made if made.strided})
    return [set(some) for count in range(len(places) + 1) for some in itertools.combinations(places, count)]


@settings(max_examples=400)
@given(steps(places=None))
def test_the_cheapest_walk_is_found(nodes) -> None:
    assert _cut(nodes).total_ns == min(_Walk(nodes, chosen).total_ns for chosen in choices(nodes))


@settings(max_examples=400)
@given(steps(places=2))
def test_where_calls_share_places_each_conversion_pays(nodes) -> None:
    found = _cheapest(nodes)
    assert all(_Walk(nodes, set(found.converted) - {place}).total_ns >= found.total_ns for place in found.converted)


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
    every = choices(nodes)
    candidate = proposal(context)
    assert candidate is not None
    assert candidate.plan is not None
    assert len(every) > 32
    assert candidate.plan.after_ns == min(_Walk(nodes, chosen).total_ns for chosen in every)
    assert candidate.plan.before_ns == _Walk(nodes, set()).total_ns
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
    line = 1 + [line.strip() for line in source.splitlines()].index("y = y + norm(y)")
    speed, _, where = trial.forecast_off.partition("; they differ most at ")
    assert speed == f"measured {1 / (trial.ratio or 0):.2f}x"
    assert re.fullmatch(rf".*program.py:{line}, forecast to take \S+ m?s less a step, where it takes .+", where)


def test_a_healthy_program_has_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial_of_plan(tmp_path, HEALTHY, monkeypatch, 1) is None


def test_an_edit_that_another_kind_proposes_too_keeps_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_simulated(signatures: Any, **options: Any) -> Any:
        return measure(signatures, timer=simulated(1), **options)

    monkeypatch.setattr(sessions, "measure", measure_simulated)
    options = Options(time_limit=1e6, only=("copy-at-origin", "step-plan"), min_share=0)
    (trial,) = repaired(tmp_path, FAULTS["permuted stream"].source, options=options).repair.won
    assert trial.candidate == "copy-at-origin"
    assert trial.forecast == pytest.approx(trial.ratio, rel=0.02)
