"""Python's garbage collector in a step that is recorded by itself."""

import gc

import pytest
import torch

from stridewise.errors import RecordingError
from stridewise.recorder import live
from stridewise.recorder.collector import full_collections_wait
from stridewise.recorder.watching.single import Dropped, StepRecorder

X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def eager_collector():
    """Every few objects all that there are would be looked at, but for what is tested."""
    before = gc.get_threshold()
    gc.freeze()
    gc.collect()  # few objects, and new ones soon a quarter of them
    gc.set_threshold(10, 1, 1)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def full():
    """How many full collections there were."""
    seen = []

    def callback(phase, info):
        if phase == "stop" and info["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(callback)
    yield seen
    gc.callbacks.remove(callback)


def make_objects() -> None:
    for _ in range(20):
        [[] for _ in range(500)]


def a_recorder() -> StepRecorder:
    return StepRecorder(library_copies=False, max_ops=30)


def test_no_full_collection_falls_into_a_recorded_step(full):
    make_objects()
    assert full  # it would
    recorder, before = a_recorder(), gc.get_threshold()
    recorder.begin()
    full.clear()
    make_objects()
    assert full == []
    gc.collect()
    assert full == [1]  # what the program asks for it gets
    X.t().contiguous()
    recorder.end()
    assert gc.get_threshold() == before
    recorder.close()


@pytest.mark.parametrize("way", ["dropped", "closed", "too many operators", "another profiler", "not begun"])
def test_it_is_as_before_however_a_recording_ends(way, monkeypatch):
    recorder, before = a_recorder(), gc.get_threshold()
    if way == "not begun":

        def fails(stack):
            raise RecordingError("no profiler")

        monkeypatch.setattr(live, "start_profiler", fails)
        with pytest.raises(RecordingError):
            recorder.begin()
    else:
        recorder.begin()
        assert gc.get_threshold() != before
    if way == "dropped":
        recorder.drop()
    elif way == "too many operators":
        for _ in range(200):
            torch.add(X, 1)
    elif way == "another profiler":
        with live.record():
            assert gc.get_threshold() == before
        with pytest.raises(Dropped):
            recorder.end()
    elif way == "closed":
        recorder.close()
    assert gc.get_threshold() == before
    recorder.close()


def test_what_the_program_sets_meanwhile_stays():
    with full_collections_wait():
        gc.set_threshold(50, 5, 5)
    assert gc.get_threshold() == (50, 5, 5)
    with full_collections_wait():
        gc.disable()
    try:
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.set_threshold(0)
    with full_collections_wait():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_a_long_recording_of_the_programs_own_leaves_it_alone():
    before = gc.get_threshold()
    with live.record():
        assert gc.get_threshold() == before
