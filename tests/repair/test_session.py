"""From a program to a diff: known faults are mended, traps refused, and the program is left as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stridewise.measure.statistics import Interval
from stridewise.measure.timing import Timed
from stridewise.repair.options import Options
from stridewise.repair.outcome import Outcome
from stridewise.repair.trial import session as sessions
from stridewise.repair.trial.bench import Timer
from stridewise.repair.trial.session import Session, live_of
from stridewise.repair.trial.workload import of_model
from stridewise.results import Progress, Repair
from stridewise.source.files import Files

from .programs import FAULTS, HEALTHY, TRAPS, Known
from .running import load
from .simulated import SimulatedTimer


def repaired(
    folder: Path,
    source: str,
    *,
    train: bool = False,
    options: Options | None = None,
    timer: Timer | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    make: Any = load(folder, source, "program").make  # type: ignore[attr-defined]
    model, args = make()
    with of_model(model, args, {}, train=train, loss=None) as workload:
        session = Session(
            workload,
            Files(folder),
            options or Options(time_limit=1e6, min_share=0),
            timer=timer or SimulatedTimer(),
            on_progress=on_progress,
        )
        return session.run(live_of(workload, make))


@pytest.fixture(autouse=True)
def no_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed operators take real time."""
    monkeypatch.setattr(sessions, "REPLAYED", 0.0)


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_fault_is_mended(name, tmp_path):
    known: Known = FAULTS[name]
    repair = repaired(tmp_path, known.source, train=known.train).repair
    assert {trial.candidate for trial in repair.won} == set(known.kinds)
    assert repair.together is not None
    assert repair.together.verdict == "won"
    assert repair.together.equal
    if known.copies is not None:
        assert (repair.together.copies_before, repair.together.copies_after) == known.copies
    added = [line[1:] for line in repair.diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert set(known.added) <= set(added)


@pytest.mark.parametrize("name", FAULTS)
def test_the_written_program_has_the_forecast_copies(name, tmp_path):
    known: Known = FAULTS[name]
    outcome = repaired(tmp_path, known.source, train=known.train)
    assert outcome.repair.together is not None
    (change,) = outcome.changes
    again = repaired(tmp_path, change.after.decode(), train=known.train)
    assert not again.repair.won
    after = outcome.repair.together.copies_after
    assert all(trial.copies_before == after for trial in again.repair.trials if trial.copies_before is not None)


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_refused_with_the_reason(name, tmp_path):
    source, reason = TRAPS[name]
    repair = repaired(tmp_path, source).repair
    assert not repair.won
    assert repair.diff == ""
    assert any(trial.verdict == "refused" and reason in (trial.reason or "") for trial in repair.trials)


def test_a_healthy_program_has_nothing_to_win(tmp_path):
    repair = repaired(tmp_path, HEALTHY).repair
    assert repair.ok
    assert repair.trials == ()


def test_a_needless_copy_is_a_finding(tmp_path):
    repair = repaired(tmp_path, FAULTS["needless copy"].source).repair
    (finding,) = [finding for finding in repair.findings if finding.code == "SW104"]
    assert finding.site.expression == "k.transpose(1, 2).contiguous()"


def test_code_and_results_are_as_before(tmp_path):
    module: Any = load(tmp_path, FAULTS["permuted stream"].source, "program")
    model, args = module.make()
    code, expected = module.Net.forward.__code__, model(*args)
    with of_model(model, args, {}, train=False, loss=None) as workload:
        Session(workload, Files(tmp_path), Options(time_limit=1e6), timer=SimulatedTimer()).run(live_of(workload))
    assert module.Net.forward.__code__ is code
    assert torch.equal(model(*args), expected)


class _Interrupted(SimulatedTimer):
    def __call__(self, *arguments: Any) -> Any:
        raise KeyboardInterrupt


def test_an_interruption_tells_what_was_not_tried(tmp_path):
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=_Interrupted()).repair
    assert repair.interrupted
    assert repair.untried
    assert not repair.won
    assert "The program is as it was." in repair.notes[-1]


class _OutOfMemory(SimulatedTimer):
    def __call__(self, *arguments: Any) -> Any:
        raise torch.OutOfMemoryError("no more")


def test_a_trial_that_is_out_of_memory_is_refused(tmp_path):
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=_OutOfMemory()).repair
    assert {trial.reason for trial in repair.trials if trial.verdict == "refused"} >= {"out of memory"}
    assert not repair.won


def test_an_edit_that_wins_no_time_is_not_proposed(tmp_path):
    class Flat(SimulatedTimer):
        def _simulated(self, arm: Any) -> int:
            arm.enter()
            arm.run()
            return 10**7

    repair: Repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=Flat()).repair
    assert {trial.verdict for trial in repair.trials} <= {"no difference", "refused"}
    assert not repair.won


def test_when_time_is_up_the_rest_is_not_tried(tmp_path):
    repair = repaired(
        tmp_path, FAULTS["permuted stream"].source, options=Options(time_limit=1e-9), timer=SimulatedTimer()
    ).repair
    assert repair.untried
    assert any("time limit" in note for note in repair.notes)


def test_progress_is_told(tmp_path):
    told: list[Progress] = []
    repaired(tmp_path, FAULTS["permuted stream"].source, on_progress=told.append)
    assert told[0].phase == "recording"
    assert {"recording", "trying"} <= {progress.phase for progress in told}


def test_only_some_kinds_are_tried(tmp_path):
    options = Options(only=("swap-operands",), time_limit=1e6)
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, options=options).repair
    assert {trial.candidate for trial in repair.trials} <= {"swap-operands"}


def test_a_step_that_is_another_each_time_is_not_judged(tmp_path):
    source = FAULTS["permuted stream"].source.replace(
        "return y\n", "self.n = id(object()); import os\n        return y + int.from_bytes(os.urandom(1))\n"
    )
    repair = repaired(tmp_path, source).repair
    assert not repair.trials
    assert any("same results twice" in note for note in repair.notes)


class Told(SimulatedTimer):
    """Says what is measured of each trial, in turn."""

    def __init__(self, *intervals: tuple[float, float, float]) -> None:
        super().__init__()
        self.told = iter(intervals)

    def __call__(self, *arguments: Any) -> Timed:
        interval = Interval(*next(self.told))
        return Timed(interval, interval.verdict, 8, 1, 1e6, 1e6 * interval.ratio)


def test_of_winners_that_are_alike_the_simplest_is_kept(tmp_path):
    timer = Told((0.5, 0.45, 0.55), (0.52, 0.47, 0.57), (1.0, 0.995, 1.005))
    repair = repaired(tmp_path, FAULTS["channels_last"].source, timer=timer).repair
    assert [trial.what for trial in repair.won] == ["bring the model's weights into channels_last, not its inputs"]
    assert [trial.verdict for trial in repair.trials] == ["won", "won"]


def test_an_edit_that_alone_wins_as_much_as_all_is_kept_alone(tmp_path):
    both = (0.8, 0.75, 0.85), (0.49, 0.47, 0.51)  # the second beside the first, and the two of them
    timer = Told((0.6, 0.45, 0.7), (0.5, 0.44, 0.55), *both)
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=timer).repair
    assert [trial.candidate for trial in repair.trials if trial.verdict == "won"] == ["swap-operands", "copy-at-origin"]
    assert [(trial.candidate, trial.ratio) for trial in repair.won] == [("copy-at-origin", 0.5)]
    assert repair.together is not None
    assert repair.together.ratio == 0.5


@pytest.mark.parametrize("first", [(0.6, 0.45, 0.7), (0.5, 0.44, 0.55)])
def test_of_winners_that_cannot_be_told_apart_each_run_proposes_the_same(first, tmp_path):
    second = (0.5, 0.44, 0.55) if first[0] == 0.6 else (0.6, 0.45, 0.7)
    timer = Told(first, second, (1.0, 0.995, 1.005))
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=timer).repair
    assert [trial.ratio for trial in repair.trials] == [first[0], second[0]]
    assert [trial.candidate for trial in repair.won] == ["copy-at-origin"]  # no nearer to the payers than needs be


def test_a_winner_that_is_clearly_faster_comes_before_a_simpler_one(tmp_path):
    timer = Told((0.4, 0.38, 0.42), (0.5, 0.49, 0.55), (1.0, 0.995, 1.005))
    repair = repaired(tmp_path, FAULTS["permuted stream"].source, timer=timer).repair
    assert [trial.candidate for trial in repair.won] == ["swap-operands"]


class Watch:
    """A clock that goes on whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


class Slow(Told):
    """Takes all the time that it is given."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(*[(0.8, 0.7, 0.9)] * 20)
        self.watch = watch

    def __call__(self, before: Any, after: Any, deadline: float, on_pair: Any) -> Timed:
        self.watch.now = max(self.watch.now, deadline)
        return super().__call__()


@pytest.mark.parametrize("limit", [4, 10, 30])
def test_the_time_limit_is_kept_with_everything_tried_at_once(limit, tmp_path):
    watch = Watch()
    make: Any = load(tmp_path, FAULTS["permuted stream"].source, "program").make  # type: ignore[attr-defined]
    model, args = make()
    with of_model(model, args, {}, train=False, loss=None) as workload:
        options = Options(time_limit=limit, min_share=0)
        session = Session(workload, Files(tmp_path), options, timer=Slow(watch), clock=watch)
        repair = session.run(live_of(workload, make)).repair
    assert len(repair.won) >= 1
    assert watch.now <= limit + 1
