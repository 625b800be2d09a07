"""Single steps of a long run: when their turn comes, and how one is recorded without harm to the program."""

import os
import threading

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from stridewise.recorder import live, private
from stridewise.recorder.job import Job, find_job
from stridewise.recorder.watching.pace import Pace
from stridewise.recorder.watching.single import Dropped, StepRecorder, Unusable

MODEL = torch.nn.Linear(8, 8)
X = torch.randn(4, 8)


def train() -> None:
    MODEL(X).sum().backward()


def a_recorder(max_ops: int = 200_000) -> StepRecorder:
    return StepRecorder(library_copies=False, max_ops=max_ops)


# -- the pace ----------------------------------------------------------------------------------------------------------


def recorded_steps(pace: Pace, *, steps: int, cost_s: float, step_s: float = 1.0) -> list[int]:
    """Which steps of a loop are recorded, when each of its steps takes so long, and a recording costs so much."""
    found, elapsed = [], 0.0
    for step in range(1, steps + 1):
        if step >= pace.due and pace.allows(elapsed, step_s):
            found.append(step)
            pace.recorded(cost_s)
            elapsed += cost_s
        elapsed += step_s
    return found


def test_one_step_of_every_thousand_is_recorded():
    pace = Pace(first=11, every=1000, max_overhead=0.001)
    assert recorded_steps(pace, steps=4000, cost_s=0.9) == [11, 1011, 2011, 3011]


def test_a_recording_that_costs_as_much_as_a_step_is_not_pushed_back():
    pace = Pace(first=11, every=1000, max_overhead=0.001)
    assert recorded_steps(pace, steps=3000, cost_s=1.0) == [11, 1011, 2011]


def test_dear_recordings_are_pushed_back_until_they_are_paid_for():
    pace = Pace(first=11, every=1000, max_overhead=0.001)
    found = recorded_steps(pace, steps=20_000, cost_s=4.0)
    assert found[0] == 11
    assert 3_900 < found[1] < 4_100
    assert len(found) == 6


@pytest.mark.parametrize("cost_s", [0.01, 0.5, 2.0, 30.0])
def test_all_recordings_cost_at_most_the_share_and_the_last_one(cost_s):
    pace = Pace(first=3, every=50, max_overhead=0.01)
    found = recorded_steps(pace, steps=20_000, cost_s=cost_s)
    assert (len(found) - 1) * cost_s <= 0.01 * (20_000 + len(found) * cost_s)


def test_only_one_step_is_recorded_without_a_distance():
    assert recorded_steps(Pace(first=5, every=None, max_overhead=0.001), steps=5000, cost_s=0.1) == [5]


def test_the_first_recording_is_tried_again_at_once_but_not_for_ever():
    pace = Pace(first=5, every=100, max_overhead=0.001)
    tried = []
    for step in range(1, 60):
        if step >= pace.due and pace.allows(step, 1.0):
            tried.append(step)
            pace.again(1.0)
    assert tried == [5, 7, 9]


# -- the place in a job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Job(3, 8)),
        ({"RANK": "3"}, None),
        ({"RANK": "eight", "WORLD_SIZE": "8"}, None),
        ({"RANK": "8", "WORLD_SIZE": "8"}, None),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Job(1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}, Job(1, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, before srun
    ],
)
def test_the_launcher_says_which_rank_it_is(environ, job):
    assert find_job(environ) == job


# -- one step ----------------------------------------------------------------------------------------------------------


def test_a_step_is_recorded_from_where_it_begins_to_where_it_ends():
    recorder = a_recorder()
    for _ in range(2):
        recorder.begin()
        train()
        recorded = recorder.end()
        assert len(recorded.recording.trace.steps) == 1
        assert recorded.recording.trace.steps_found
        assert not recorded.open_annotation
        train()
    recorder.close()


def test_what_runs_already_is_not_disturbed():
    recorder = a_recorder()
    with live.record() as recording:
        with pytest.raises(Dropped, match="another recording"):
            recorder.begin()
        train()
    assert recording.trace.ops.count
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with pytest.raises(Dropped, match="another profiler"):
            recorder.begin()
        train()
    assert profiler.events()
    recorder.close()


def test_a_profiler_that_waits_for_its_turn_is_seen_whenever_it_was_made():
    recorder = a_recorder()
    recorder.begin()
    train()
    recorder.end()
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=2, active=1, repeat=1)
    ) as profiler:
        with pytest.raises(Dropped, match="another profiler"):
            recorder.begin()
        with pytest.raises(Dropped, match="another profiler"):  # and it is looked for again
            recorder.begin()
        for _ in range(3):
            train()
            profiler.step()
    recorder.begin()
    train()
    recorder.end()
    recorder.close()


def test_what_the_program_starts_itself_ends_ours():
    recorder = a_recorder()
    recorder.begin()
    with live.record() as recording:
        train()
    assert recording.trace.ops.count
    with pytest.raises(Dropped, match="profiler of its own"):
        recorder.end()
    recorder.begin()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train()
    assert profiler.events()
    with pytest.raises(Dropped, match="profiler of its own"):
        recorder.end()
    recorder.close()


def test_a_step_with_too_many_operators_is_given_up():
    recorder = a_recorder(max_ops=30)
    recorder.begin()
    for _ in range(100):
        torch.add(X, 1)
    with pytest.raises(Unusable, match="more than 30 operators"):
        recorder.end()
    recorder.close()


def test_an_open_annotation_is_told_of():
    recorder = a_recorder()
    recorder.begin()
    with record_function("the whole epoch"):
        train()
        assert recorder.end().open_annotation
    recorder.begin()
    with record_function("the whole epoch"):
        train()
        with pytest.raises(Unusable, match="record_function"):
            recorder.drop()
    recorder.close()


def test_it_leaves_nothing_behind():
    before = torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._enable_profiler
    recorder = a_recorder()
    recorder.begin()
    train()
    recorder.close()
    assert (torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._enable_profiler) == before
    assert not live.is_recording()
    assert not private.profiler_is_on()
    recorder.close()


def test_it_is_known_which_thread_it_is_on():
    recorder = a_recorder()
    recorder.begin()
    here = []
    thread = threading.Thread(target=lambda: here.append(recorder.is_here))
    thread.start()
    thread.join()
    assert (here, recorder.is_here) == ([False], True)
    recorder.close()


def test_a_step_whose_thread_has_ended_can_be_dropped_from_elsewhere():
    recorder = a_recorder()
    for end in (recorder.drop, recorder.close):
        thread = threading.Thread(target=recorder.begin)
        thread.start()
        thread.join()
        assert recorder.running
        assert recorder.is_orphan
        assert not recorder.is_here
        end()
        assert not live.is_recording()
        assert not private.profiler_is_on()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_cannot_end_what_its_parent_records():
    recorder = a_recorder()
    recorder.begin()
    train()
    if (child := os.fork()) == 0:
        try:
            recorder.end()
        except Dropped as dropped:
            os._exit(0 if "forked" in str(dropped) and not live.is_recording() else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    if (child := os.fork()) == 0:
        recorder.drop()
        recorder.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(recorder.end().recording.trace.steps) == 1
    recorder.close()


def test_a_profiler_that_still_marks_steps_is_seen_when_its_schedule_is_over():
    recorder = a_recorder()
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=1, repeat=1)
    ) as profiler:
        for _ in range(4):
            train()
            profiler.step()
        with pytest.raises(Dropped, match="another profiler is open"):
            recorder.begin()
    recorder.begin()
    train()
    assert not recorder.end().open_annotation
    recorder.close()
