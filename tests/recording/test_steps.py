"""Steps in recordings made by hand, and the count of them while a recording is made."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.recording.build import TraceBuilder
from stridewise.recording.model import (
    BEGIN_MARK,
    LAST_MARK,
    MODULE_MARK,
    OPTIMIZER_MARK,
    STEP_MARK,
    CallLog,
    ModuleCallRow,
)
from stridewise.recording.steps import Found, StepCount, find_steps
from stridewise.recording.trace import Ops, Step

MODULES = [("", "Model"), ("head", "Linear"), ("", "Loss"), ("", "Other"), ("layers.0", "Block"), ("layers.1", "Block")]
MODEL, HEAD, LOSS, OTHER, FIRST_BLOCK, SECOND_BLOCK = range(6)


class Tape:
    """A recording, written event by event: each takes 10 ns, the next comes 10 ns later."""

    def __init__(self, **log: object) -> None:
        self.now = 0
        self.events: list[tuple[str, int]] = []
        self.in_backward: list[int] = []
        self.log = CallLog(modules=MODULES, weightless=[LOSS], **log)  # type: ignore[arg-type]

    def mark(self, name: str) -> "Tape":
        self.events.append((name, self.now))
        self.now += 20
        return self

    def op(self) -> "Tape":
        return self.mark("aten::add")

    def call(self, module: int, *, parent: int = -1, in_backward: bool = False) -> "Tape":
        number = len(self.log.module_calls)
        self.log.module_calls.append(ModuleCallRow(number, module, parent, [], []))
        self.in_backward += [len(self.events)] if in_backward else []
        return self.mark(f"{MODULE_MARK}{number}")

    @property
    def ops(self) -> Ops:
        builder = TraceBuilder(self.log)
        for name, start in self.events:
            builder.op(name, start, start + 10, "main")
        ops = builder.build().ops
        for index in self.in_backward:
            ops.node[index] = 0
        return ops

    def found(self, profiler_steps: Sequence[tuple[int, int]] = ()) -> Found:
        return find_steps(self.ops, self.log, profiler_steps, 0, self.now)

    def steps(self) -> list[tuple[int, int]]:
        return [(step.start_ns, step.end_ns) for step in self.found()[0]]


def test_without_any_mark_all_is_one_step() -> None:
    steps, found, notes, _ = Tape().op().op().found()
    assert (steps, found) == ([Step(0, 40)], False)
    assert "one step" in notes[0]


def test_an_empty_recording_is_one_step() -> None:
    assert find_steps(Tape().ops, None, [], 0, 0)[0] == [Step(0, 1)]


def test_steps_run_from_the_end_of_one_optimizer_step_to_the_next() -> None:
    tape = Tape().op().mark(f"{OPTIMIZER_MARK}0").call(MODEL).mark(f"{OPTIMIZER_MARK}0").mark(f"{OPTIMIZER_MARK}0")
    assert tape.steps() == [(20, 60), (60, 80)]


def test_only_the_first_optimizer_seen_counts() -> None:
    tape = Tape()
    for _ in range(3):
        tape.mark(f"{OPTIMIZER_MARK}1").mark(f"{OPTIMIZER_MARK}0")
    assert tape.steps() == [(0, 40), (40, 80)]


def test_a_recording_begun_at_a_step_has_that_step_whole() -> None:
    assert Tape().mark(BEGIN_MARK).op().mark(f"{OPTIMIZER_MARK}0").steps() == [(0, 40)]
    assert Tape().mark(BEGIN_MARK).op().mark(STEP_MARK).op().steps() == [(0, 40)]


def test_a_recording_ended_at_a_step_leaves_nothing_out() -> None:
    assert Tape().mark(BEGIN_MARK).op().op().mark(LAST_MARK).steps() == [(0, 60)]
    assert Tape().mark(BEGIN_MARK).op().mark(STEP_MARK).op().mark(STEP_MARK).op().mark(LAST_MARK).steps() == [
        (0, 40),
        (40, 120),
    ]
    assert Tape().mark(BEGIN_MARK).op().mark(STEP_MARK).mark(LAST_MARK).steps() == [(0, 40)]


def test_a_single_step_lasts_from_the_first_module_call() -> None:
    assert Tape().op().call(MODEL).mark(f"{OPTIMIZER_MARK}0").steps() == [(20, 40)]
    assert Tape().op().op().mark(STEP_MARK).steps() == [(0, 40)]


def test_what_the_program_says_counts_first() -> None:
    tape = Tape(module_step="Model")
    for _ in range(3):
        tape.call(MODEL).mark(f"{OPTIMIZER_MARK}0").mark(STEP_MARK)
    assert tape.steps() == [(40, 100), (100, 160)]


def test_without_an_optimizer_steps_start_at_calls_of_the_busiest_root() -> None:
    tape = Tape().op().call(OTHER).call(MODEL).call(MODEL).call(HEAD, parent=2).op()
    assert tape.steps() == [(40, 60), (60, 120)]


def test_calls_in_backward_are_no_steps() -> None:
    assert Tape().call(MODEL).call(HEAD, in_backward=True).call(HEAD, in_backward=True).steps() == [(0, 60)]


def test_modules_without_parameters_are_no_steps_if_there_are_others() -> None:
    assert Tape().call(LOSS).call(LOSS).call(MODEL).steps() == [(40, 60)]
    assert Tape().call(LOSS).call(LOSS).steps() == [(0, 20), (20, 40)]


@pytest.mark.parametrize(("name", "starts"), [("head", [20]), ("Block", [40, 80]), ("layers.1", [60, 80])])
def test_a_module_that_was_asked_for(name: str, starts: list[int]) -> None:
    tape = Tape(module_step=name).mark(f"{OPTIMIZER_MARK}0").call(HEAD).call(FIRST_BLOCK)
    tape.call(SECOND_BLOCK, parent=1).call(SECOND_BLOCK).mark(f"{OPTIMIZER_MARK}0")
    assert tape.steps() == [*zip(starts, [*starts[1:], 120], strict=True)]
    assert tape.found()[2] == []


def test_a_module_that_was_asked_for_and_did_not_run() -> None:
    tape = Tape(module_step="layers.1").call(MODEL).call(MODEL)
    assert tape.steps() == [(0, 20), (20, 40)]
    assert tape.found()[2] == ["No module called layers.1 ran: steps were told apart without it."]


def test_a_path_may_leave_the_roots_class_out() -> None:
    tape = Tape(module_step="head")
    tape.log.modules = [("Net", "Net"), ("Net.head", "Linear"), ("Loss", "Loss")]
    assert tape.call(0).call(1, parent=0).call(0).call(1, parent=2).steps() == [(20, 60), (60, 80)]


def test_profiler_steps_count_in_recordings_made_elsewhere() -> None:
    tape = Tape().call(MODEL).call(MODEL)
    assert tape.found([(30, 40), (0, 20), (5, 5)])[0] == [Step(0, 20), Step(30, 40)]
    assert find_steps(tape.ops, None, [(0, 20)], 0, 40) == ([Step(0, 20)], True, [], True)


def test_warm_up_and_limit() -> None:
    tape = Tape(warmup=2, limit=3)
    for _ in range(9):
        tape.call(MODEL)
    assert tape.steps() == [(40, 60), (60, 80), (80, 100)]


def test_the_last_of_the_warm_up_steps_if_there_are_no_others() -> None:
    tape = Tape(warmup=2, limit=3).call(MODEL).call(MODEL)
    assert tape.steps() == [(20, 40)]
    assert "during warm-up (2 of 2 steps)" in tape.found()[2][0]


def test_a_step_that_was_broken_off_counts_only_if_it_is_the_only_one() -> None:
    assert Tape(cut=True).call(MODEL).call(MODEL).call(MODEL).steps() == [(0, 20), (20, 40)]
    assert Tape(cut=True, warmup=2).call(MODEL).call(MODEL).call(MODEL).steps() == [(20, 40)]
    alone = Tape(cut=True, warmup=2).call(MODEL).op()
    assert alone.steps() == [(0, 40)]
    assert alone.found()[2] == ["The recording ended within its first step: the figures are of a part of it."]


@pytest.mark.parametrize("cut", [False, True])
def test_a_recording_that_was_broken_off_within_its_one_step_is_not_whole(cut: bool) -> None:
    assert Tape(cut=cut).op().found().whole is not cut
    assert Tape(cut=cut, warmup=2).call(MODEL).op().found().whole is not cut
    assert Tape(cut=cut).call(MODEL).call(MODEL).op().found().whole
    assert Tape(cut=cut, warmup=2).call(MODEL).call(MODEL).op().found().whole
    assert Tape(cut=cut).op().mark(STEP_MARK).op().found().whole


def test_a_program_with_steps_has_its_last_one_to_the_end() -> None:
    assert Tape().call(MODEL).call(MODEL).op().steps() == [(0, 20), (20, 60)]


# -- counted while recording -------------------------------------------------------------------------------------------

EVENTS = ["step", "optimizer", "asked", "model", "other", "loss", "op"]


@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=25),
    began_at_step=st.booleans(),
    asked=st.booleans(),
    warmup=st.integers(0, 3),
    limit=st.integers(1, 3),
)
def test_the_count_is_of_the_steps_that_will_be_found(
    events: list[str], began_at_step: bool, asked: bool, warmup: int, limit: int
) -> None:
    tape = Tape(warmup=warmup, cut=True, module_step="head" if asked else None)
    count = StepCount(warmup=warmup, limit=limit, began_at_step=began_at_step, asked=asked)
    if began_at_step:
        tape.mark(BEGIN_MARK)
    for event in events:
        if event == "step":
            tape.mark(STEP_MARK)
            count.saw("step")
        elif event == "optimizer":
            tape.mark(f"{OPTIMIZER_MARK}0")
            count.saw("optimizer")
        elif event == "asked":
            tape.call(MODEL).call(HEAD, parent=len(tape.log.module_calls) - 1)
            count.saw_root(MODEL, weightless=False)
            count.saw("module-step")
        elif event == "op":
            tape.op()
        else:
            module = {"model": MODEL, "other": OTHER, "loss": LOSS}[event]
            tape.call(module)
            count.saw_root(module, weightless=module == LOSS)
        if count.recorded:
            steps, found, notes, whole = tape.found()
            assert found
            assert whole
            assert len(steps) == count.recorded
            assert notes == []
            assert count.enough == (len(steps) >= limit)


def test_the_busiest_root_is_the_one_that_steps_start_at() -> None:
    count = StepCount(warmup=0, limit=1)
    assert count.busiest_root is None
    for root, weightless in [(1, True), (1, True), (2, False), (3, False), (3, False)]:
        count.saw_root(root, weightless=weightless)
    assert count.busiest_root == 3
    assert count.whole == 1
