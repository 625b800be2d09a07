"""A monitor that its loop leaves in the midst of a recorded step: nothing goes on behind the program's back."""

import gc
import logging
import os
import threading

import pytest
import torch

import stridewise
from stridewise.api.monitoring import loop
from stridewise.api.monitoring.callers import level_outside
from stridewise.errors import LayoutWarning, UsageError
from stridewise.recorder import live, private


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert not live.is_recording()


def step() -> None:
    torch.randn(8, 4).t().contiguous()


def begun(**options) -> loop.Monitor:
    watched = stridewise.monitor(**{"warmup": 1, "every": 2, "max_overhead": None, **options})
    step()
    watched.step()
    assert live.is_recording()
    return watched


def test_one_that_is_forgotten_ends_its_recording():
    thresholds = gc.get_threshold()
    begun()
    assert not live.is_recording()
    assert not private.profiler_is_on()
    assert torch._C._len_torch_function_stack() == 0
    assert gc.get_threshold() == thresholds


def test_one_in_a_cycle_does_when_it_is_collected():
    cycle = [begun()]
    cycle.append(cycle)
    del cycle
    assert live.is_recording()
    gc.collect()
    assert not live.is_recording()
    assert not private.profiler_is_on()


def test_a_function_that_fails_takes_its_monitor_with_it():
    def train() -> None:
        watched = begun()
        assert watched.steps == 1
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck") as caught:
        train()
    del caught
    gc.collect()
    assert not live.is_recording()


@pytest.mark.needs_torch("2.7", "a profiler whose thread has ended keeps all others from running")
def test_a_thread_that_ends_in_a_recorded_step_is_noticed():
    made = []
    thread = threading.Thread(target=lambda: made.append(begun()))
    thread.start()
    thread.join()
    watched = made.pop()
    for _ in range(4):
        step()
        watched.step()
    assert watched.notes == ["a step was not recorded: the thread on which it began has ended"]
    assert watched.recorded_step == 4
    watched.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_only_the_process_that_began_a_step_ends_it():
    watched = begun()
    if (child := os.fork()) == 0:
        for _ in range(3):
            step()
            watched.step()
        right = watched.report is None and len(watched.notes) == 1 and "forked from" in watched.notes[0]
        os._exit(not right or live.is_recording())
    assert os.waitpid(child, 0)[1] == 0
    step()
    watched.step()
    assert watched.recorded_step == 2
    assert watched.notes == []
    watched.close()


# -- what it says ------------------------------------------------------------------------------------------------------


def test_recordings_that_are_put_off_are_told_of_once(caplog):
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()

    def dear(figures, step):
        clock.now += 50.0

    caplog.set_level(logging.INFO, logger="stridewise")
    with loop.Monitor(every=5, warmup=2, max_overhead=0.1, loggers=dear, clock=clock) as watched:
        for _ in range(60):
            step()
            clock.now += 1.0
            watched.step()
    assert watched.recorded_step == 3
    assert watched.notes == [
        "recordings are put off: they have cost more than max_overhead=0.1 of the time (None records each that is due)"
    ]
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_what_is_cancelled_is_told_of():
    watched = begun()
    watched.cancel()
    assert watched.notes == ["a step was not recorded: cancel() was called in its midst"]
    watched.close()


def test_the_warning_is_at_the_line_of_a_loop_over_the_loader():
    def train() -> None:
        for _ in stridewise.monitor([0] * 5, warmup=1, max_overhead=None, min_share=0, budget="copies=0"):
            step()

    with pytest.warns(LayoutWarning) as caught:
        train()
    assert caught[0].filename == __file__


def test_a_level_is_counted_to_the_first_line_outside():
    assert level_outside(["stridewise"]) == 1
    code = "def call(): return level_outside(['inner'])"
    names = {"__name__": "inner.module", "level_outside": level_outside}
    exec(code, names)
    assert names["call"]() == 2


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("on_report", [3, "print"]),
        ("min_share", ["2%", -0.1, 2, None, float("nan"), True]),
        ("max_ops", [0, None, "9", 2.5, True]),
        ("budget", [None, 5]),
        ("every", ["3", 2.5, True, 0]),
        ("warmup", [None, 1.5, "1", True]),
        ("max_overhead", ["0.1", True, float("nan"), -1]),
        ("formats", ["xml", ["json", "xml"], None, 3, [3]]),
        ("keep", [0, "3", 1.5]),
        ("folder", [3, ["a"]]),
        ("recordings", ["yes", 1]),
        ("library_copies", [None, "no"]),
        ("on_excess", [None, ["warn"], "explode"]),
        ("loader", [3, True]),
        ("select", ["S W", 3, [3], "SW999"]),
        ("ignore", ["copies", 5, "SW999"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_without_sense_is_refused_at_once_by_its_name(option, values):
    for value in values:
        with pytest.raises(UsageError) as caught:
            stridewise.monitor(**{option: value})
        assert len(str(caught.value).splitlines()) <= 2, value
        if option not in ("select", "ignore"):
            assert str(caught.value).startswith(f"{option} is {value!r}."), value


def test_and_one_that_makes_sense_is_taken(tmp_path):
    import numpy as np

    for options in (
        {"every": None, "max_overhead": None, "keep": None, "formats": []},
        {"every": np.int64(3), "max_overhead": np.float32(0.5), "warmup": 0, "min_share": 1},
        {"formats": "json", "folder": tmp_path, "recordings": False, "keep": 1},
        {"loader": range(3), "on_report": print, "budget": "share=2%"},
        {"select": "sw101,SW103", "ignore": ["SW2"]},
    ):
        stridewise.monitor(**options).close()
