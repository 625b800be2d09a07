"""Trials of synthetic programs under synthetic noise: equal ones draw, known effects are found, time is kept."""

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from stridewise.measure import timing
from stridewise.measure.statistics import LOOKS, Interval
from stridewise.measure.timing import SAMPLE_NS, Arm, Timed, compare

RUNS = 200
SECOND = 1_000_000_000
SAMPLES = 2 * LOOKS[-1] + 4
Random_ = np.random.Generator
Logs = np.ndarray


# ------------------------------------------------------------------------------------------------------------- noise


def gauss(random: Random_, spread: float) -> Logs:
    return spread * random.standard_normal(SAMPLES)


def switching(random: Random_, on: float, off: float) -> Logs:
    """Where a thing is that comes and goes with these chances a sample."""
    there, now = np.zeros(SAMPLES, bool), random.random() < on / (on + off)
    for at, chance in enumerate(random.random(SAMPLES)):
        there[at] = now = chance >= off if now else chance < on
    return there


def outliers(random: Random_) -> Logs:
    hit = random.random(SAMPLES) < 0.1
    return gauss(random, 0.03) + hit * np.log(random.uniform(2, 10, SAMPLES))


def heavy_tails(random: Random_) -> Logs:
    return np.clip(0.03 * random.standard_t(1.5, SAMPLES), -3, 3)


def drift(random: Random_) -> Logs:
    return gauss(random, 0.05) + random.choice([-0.5, 0.5]) * np.linspace(0, 1, SAMPLES)


def autocorrelated(random: Random_) -> Logs:
    logs, noise = np.zeros(SAMPLES), gauss(random, 0.035)
    for at in range(1, SAMPLES):
        logs[at] = 0.9 * logs[at - 1] + noise[at]
    return logs


def bursts(random: Random_) -> Logs:
    return gauss(random, 0.03) + switching(random, 0.03, 0.2) * np.log(random.uniform(1.3, 3, SAMPLES))


def steps(random: Random_) -> Logs:
    """Other processes start and end."""
    at = np.sort(random.integers(0, SAMPLES, 4))
    return gauss(random, 0.03) + random.uniform(0, 0.7, 5)[np.searchsorted(at, np.arange(SAMPLES), side="right")]


def two_clocks(random: Random_) -> Logs:
    return gauss(random, 0.02) + 0.25 * switching(random, 0.15, 0.15)


def two_clocks_quick(random: Random_) -> Logs:
    return gauss(random, 0.02) + 0.25 * (random.random(SAMPLES) < 0.4)


def period_of_two(random: Random_) -> Logs:
    return gauss(random, 0.02) + 0.2 * ((np.arange(SAMPLES) + random.integers(2)) % 2)


def period_of_four(random: Random_) -> Logs:
    return gauss(random, 0.02) + 0.2 * ((np.arange(SAMPLES) + random.integers(4)) % 4 < 2)


def period_of_eight(random: Random_) -> Logs:
    return gauss(random, 0.02) + 0.15 * np.sin(2 * np.pi * (np.arange(SAMPLES) / 8 + random.random()))


NOISE: dict[str, Callable[[Random_], Logs]] = {
    "3 %": lambda random: gauss(random, 0.03),
    "10 %": lambda random: gauss(random, 0.1),
    "outliers": outliers,
    "heavy tails": heavy_tails,
    "drift": drift,
    "autocorrelated": autocorrelated,
    "bursts": bursts,
    "steps": steps,
    "two clocks": two_clocks,
    "two clocks, quick": two_clocks_quick,
    "period of two": period_of_two,
    "period of four": period_of_four,
    "period of eight": period_of_eight,
}


# ---------------------------------------------------------------------------------------------------------- programs


class Machine:
    """Runs synthetic steps one after another: its noise depends on when, not on what."""

    def __init__(self, logs: Logs | None = None) -> None:
        self.factors = [1.0] if logs is None else np.exp(logs).tolist()
        self.ran: list[str] = []
        self.entered: list[str] = []
        self.now = 0.0


class Program:
    """An arm whose step takes so many nanoseconds on a calm machine, and more wall time around it."""

    def __init__(self, machine: Machine, name: str, step_ns: float, *, untimed_s: float = 0) -> None:
        self.machine = machine
        self.name = name
        self.step_ns = step_ns
        self.untimed_s = untimed_s

    def enter(self) -> None:
        self.machine.entered.append(self.name)

    def run(self) -> int:
        assert self.machine.entered[-1] == self.name
        factors = self.machine.factors
        took = round(self.step_ns * factors[len(self.machine.ran) % len(factors)])
        self.machine.ran.append(self.name)
        self.machine.now += took / SECOND + self.untimed_s
        return took


def pair(machine: Machine, ratio: float = 1, step_ns: float = SECOND, untimed_s: float = 0) -> tuple[Program, Program]:
    return (
        Program(machine, "A", step_ns, untimed_s=untimed_s),
        Program(machine, "B", ratio * step_ns, untimed_s=untimed_s),
    )


def timed(machine: Machine, arms: tuple[Arm, Arm], deadline: float = math.inf, seed: int = 0) -> Timed:
    return compare(*arms, clock=lambda: machine.now, deadline=deadline, seed=seed)


def verdicts(noise: Callable[[Random_], Logs], ratio: float, runs: int = RUNS) -> list[Timed]:
    found = []
    for seed in range(runs):
        machine = Machine(noise(np.random.default_rng(seed)))
        found.append(timed(machine, pair(machine, ratio), seed=seed))
    return found


def share(trials: list[Timed], *wanted: str) -> float:
    return sum(trial.verdict in wanted for trial in trials) / len(trials)


# ---------------------------------------------------------------------------------------------------- what it declares


@pytest.mark.parametrize("noise", NOISE)
def test_of_two_equal_programs_none_wins(noise: str) -> None:
    assert share(verdicts(NOISE[noise], 1), "won", "lost") < 0.05


def test_noise_in_step_with_the_pairs_would_fool_it_without_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the coins are for: with the same order in each pair equal programs win or lose."""

    class Fixed(Random):
        def getrandbits(self, k: int, /) -> int:
            return 0

    monkeypatch.setattr(timing, "Random", Fixed)
    assert share(verdicts(period_of_two, 1, runs=40), "won", "lost") > 0.9


@pytest.mark.parametrize(
    ("noise", "ratio"),
    [("3 %", 0.95), ("10 %", 0.8), ("outliers", 0.5), ("two clocks", 0.9), ("steps", 0.95), ("drift", 0.95)],
)
def test_known_effects_are_found(noise: str, ratio: float) -> None:
    trials = verdicts(NOISE[noise], ratio, runs=60)
    assert share(trials, "won") > 0.9
    assert share(trials, "lost") == 0


def test_losses_are_found() -> None:
    assert share(verdicts(NOISE["3 %"], 1.05, runs=40), "lost") > 0.9


@pytest.mark.parametrize("noise", ["3 %", "10 %", "outliers", "bursts"])
def test_half_a_percent_is_no_win(noise: str) -> None:
    assert share(verdicts(NOISE[noise], 0.995, runs=100), "won") < 0.05


def test_intervals_hold_the_ratio() -> None:
    """Those that trials end with, wherever they stop."""
    trials = verdicts(NOISE["3 %"], 0.97)
    held = [trial.interval is not None and trial.interval.low <= 0.97 <= trial.interval.high for trial in trials]
    assert sum(held) / len(held) > 0.95


# --------------------------------------------------------------------------------------------------------- how it runs


def test_it_stops_as_soon_as_it_is_clear() -> None:
    machine = Machine()
    told: list[tuple[int, Interval | None]] = []
    arms = pair(machine, 0.5)
    found = compare(*arms, clock=lambda: 0, deadline=1, progress=lambda *what: told.append(what))
    assert found == Timed(Interval(0.5, 0.5, 0.5), "won", 8, 1, SECOND, SECOND / 2)
    assert told == [*((pairs, None) for pairs in range(1, 8)), (8, found.interval)]


def test_equal_times_are_no_difference_at_once() -> None:
    machine = Machine()
    found = timed(machine, pair(machine))
    assert (found.verdict, found.pairs) == ("no difference", LOOKS[0])


def test_what_is_never_clear_ends_with_the_last_look() -> None:
    machine = Machine(gauss(np.random.default_rng(3), 0.2))
    found = timed(machine, pair(machine))
    assert found.interval is not None
    assert found.interval.verdict is None
    assert (found.verdict, found.pairs) == ("no difference", LOOKS[-1])


def test_pairs_go_a_b_or_b_a() -> None:
    machine = Machine()
    timed(machine, pair(machine))
    assert machine.ran[:4] == ["A", "B", "A", "B"]  # warm-up
    pairs = ["".join(machine.ran[at : at + 2]) for at in range(4, len(machine.ran), 2)]
    assert set(pairs) == {"AB", "BA"}
    assert pairs != sorted(pairs)


def test_the_coins_are_those_of_the_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        machine = Machine()
        timed(machine, pair(machine), seed=seed)
        orders.append(machine.ran)
    assert orders[0] == orders[1] != orders[2]


def test_an_arm_is_entered_only_when_the_other_ran() -> None:
    machine = Machine()
    timed(machine, pair(machine, step_ns=SAMPLE_NS / 4))
    assert all(one != other for one, other in zip(machine.entered, machine.entered[1:], strict=False))


def test_cold_first_steps_do_not_count() -> None:
    machine = Machine(np.log([50, 20, 3, 3] + [1] * SAMPLES))
    found = timed(machine, pair(machine))
    assert found.interval == Interval(1, 1, 1)
    assert found.before_ns == SECOND


@pytest.mark.parametrize("ratio", [1, 0.5, 2])
@pytest.mark.parametrize("step_ns", [20_000, 1_000_000, 7_000_000])
def test_short_steps_are_timed_several_at_a_time(step_ns: int, ratio: float) -> None:
    """As many in both arms, for a sample of the faster one to last long enough."""
    machine = Machine()
    found = timed(machine, pair(machine, ratio, step_ns))
    sample_ns = found.steps * step_ns * min(1, ratio)
    assert 0.8 * SAMPLE_NS <= sample_ns <= 1.5 * SAMPLE_NS
    assert found.before_ns == pytest.approx(step_ns)
    assert found.after_ns == pytest.approx(step_ns * ratio)
    counted = machine.ran[-2 * found.pairs * found.steps :]
    assert counted.count("A") == counted.count("B")


def test_long_steps_are_timed_one_at_a_time() -> None:
    machine = Machine()
    assert timed(machine, pair(machine, step_ns=SAMPLE_NS)).steps == 1


def test_steps_with_much_untimed_work_are_fewer() -> None:
    machine = Machine()
    found = timed(machine, pair(machine, step_ns=100_000, untimed_s=0.05))
    assert found.steps == 3


def test_steps_without_time_do_not_break_it() -> None:
    machine = Machine()
    found = timed(machine, pair(machine, step_ns=0))
    assert found.verdict == "no difference"


# --------------------------------------------------------------------------------------------------------------- time


def test_too_little_time_gives_no_interval_and_no_verdict() -> None:
    machine = Machine()
    found = timed(machine, pair(machine), deadline=4 + 5 * 2 + 1)
    assert found == Timed(None, None, 5, 1, SECOND, SECOND)
    assert machine.now == 4 + 5 * 2


def test_no_time_at_all_runs_nothing() -> None:
    machine = Machine()
    assert timed(machine, pair(machine), deadline=-1) == Timed(None, None, 0, 1, None, None)
    assert machine.ran == []


@pytest.mark.parametrize("pairs", [6, 7])
def test_a_trial_that_is_cut_short_says_what_it_knows(pairs: int) -> None:
    """Its one look, before any was due, spends all of the error."""
    machine = Machine()
    found = timed(machine, pair(machine, 0.5), deadline=3 + 1.5 * pairs)
    assert (found.verdict, found.pairs) == ("won", pairs)
    assert machine.now == 3 + 1.5 * pairs


@pytest.mark.parametrize("noise", ["3 %", "10 %", "outliers", "period of four"])
@pytest.mark.parametrize("pairs", [6, 10, 30])
def test_of_two_equal_programs_none_wins_in_little_time(noise: str, pairs: int) -> None:
    trials = []
    for seed in range(RUNS):
        machine = Machine(NOISE[noise](np.random.default_rng(seed)))
        trials.append(timed(machine, pair(machine), deadline=4 + 2 * pairs, seed=seed))
    assert share(trials, "won", "lost") < 0.05


def test_what_is_not_clear_when_time_is_up_is_no_difference() -> None:
    machine = Machine(gauss(np.random.default_rng(3), 0.2))
    found = timed(machine, pair(machine), deadline=22)
    assert 6 <= found.pairs < 12
    assert found.verdict == "no difference"
    assert machine.now < 25


def test_a_pair_that_is_cut_short_does_not_count() -> None:
    machine = Machine(np.log([1.0] * 16 + [100.0] + [1.0] * 300))
    found = timed(machine, pair(machine), deadline=18)
    assert found.pairs == 6
    assert (found.before_ns, found.after_ns) == (SECOND, SECOND)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()])
def test_what_an_arm_raises_is_let_through(error: BaseException) -> None:
    machine = Machine()
    before, _ = pair(machine)

    class Broken(Program):
        def run(self) -> int:
            if len(machine.ran) > 10:
                raise error
            return super().run()

    with pytest.raises(type(error)) as caught:
        timed(machine, (before, Broken(machine, "B", SECOND)))
    assert caught.value is error
