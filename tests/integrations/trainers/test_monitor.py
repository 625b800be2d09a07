"""`stridewise.monitor` in a loop: what it tells, what it costs, and that the loop never feels it."""

import json
import logging
import os
import subprocess
import sys
import threading
import traceback

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import stridewise
from stridewise.api.monitoring import loop
from stridewise.errors import BudgetExceeded, LayoutWarning, UsageError
from stridewise.recorder import live, private

LAUNCHER = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No launcher has started this process, and no test leaves a recording behind."""
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    yield
    assert not live.is_recording()


class Training:
    """A model whose every step makes one copy that layout is to blame for."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(32, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> float:
        x = torch.randn(32, 16).t()
        loss = self.model(x.reshape(-1, 32)).square().mean() + x.reshape(-1).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(steps: int, **options) -> tuple[loop.Monitor, list[int], list[float]]:
    """A loop of so many steps; which were recorded, and all losses."""
    training, recorded = Training(), []
    options = {
        "max_overhead": None,
        "min_share": 0,
        "warmup": 2,
        "on_report": lambda report, step: recorded.append(step),
        **options,
    }
    with stridewise.monitor(**options) as watch:
        losses = []
        for _ in range(steps):
            losses.append(training.step())
            watch.step()
    return watch, recorded, losses


# -- what is recorded, and told ----------------------------------------------------------------------------------------


def test_one_step_of_every_few_is_recorded():
    told = []
    watched, recorded, _ = watch(12, every=4, loggers=lambda figures, step: told.append((step, figures)))
    assert recorded == [3, 7, 11]
    assert [step for step, _ in told] == [3, 7, 11]
    assert watched.recorded_step == 11
    totals = watched.report.totals
    assert (totals.steps, totals.steps_found, totals.copies) == (1, True, 1)
    figures = told[-1][1]
    assert figures["stridewise/copies"] == 1
    assert figures["stridewise/bytes_moved"] == totals.bytes_moved
    assert figures["stridewise/share"] == totals.share
    assert figures["stridewise/duration_ms"] == totals.duration_ns / 1e6
    assert figures["stridewise/findings"] == 1


def test_the_loop_computes_what_it_computes_without():
    _, _, watched = watch(9, every=3)
    state = torch.get_rng_state()
    training = Training()
    assert [training.step() for _ in range(9)] == watched
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loader_says_itself_where_steps_end():
    batches = [torch.randn(4, 8) for _ in range(5)]
    model = torch.nn.Linear(8, 8)
    watched = stridewise.monitor(batches, every=3, warmup=1, max_overhead=None)
    assert len(watched) == 5
    seen = []
    for _ in range(2):
        for batch in watched:
            model(batch)
            seen.append(batch)
    assert len(seen) == 10
    assert all(one is other for one, other in zip(seen, batches * 2, strict=True))
    assert watched.steps == 10
    assert watched.recorded_step == 8
    watched.close()


def test_a_loop_that_is_left_takes_the_recording_with_it():
    watched = stridewise.monitor([torch.zeros(2)] * 5, warmup=1)
    for number, batch in enumerate(watched):
        batch + 1
        if number == 1:
            assert live.is_recording()
            break
    assert not live.is_recording()
    watched.close()


def test_steps_have_the_numbers_that_the_loop_gives_them():
    training, told = Training(), []
    with stridewise.monitor(warmup=1, loggers=lambda figures, step: told.append(step)) as watched:
        for number in range(500, 505):
            training.step()
            watched.step(number)
    assert told == [501]


def test_other_work_between_steps_is_left_out():
    training = Training()
    with stridewise.monitor(warmup=2, max_overhead=None) as watched:
        for _ in range(5):
            watched.begin()
            training.step()
            watched.end()
            torch.randn(16, 32).t().contiguous()
    assert watched.recorded_step == 3
    assert watched.report.totals.copies == 1
    with stridewise.monitor(warmup=2, max_overhead=None) as watched:
        for _ in range(8):
            training.step()
            watched.step()
            if watched.steps == 2:
                assert live.is_recording()
                watched.cancel()
                assert not live.is_recording()
    assert watched.recorded_step == 5


def test_a_loop_that_is_too_short_is_told_so():
    watched, recorded, _ = watch(3, warmup=10)
    assert recorded == []
    assert watched.notes == ["the loop ended after 3 steps, before one was recorded"]


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_recordings_are_pushed_back_until_they_are_paid_for():
    clock, recorded = Clock(), []

    def dear(figures, step):
        recorded.append(step)
        clock.now += 5.0

    with loop.Monitor(every=10, warmup=3, max_overhead=0.1, loggers=dear, clock=clock) as watched:
        for _ in range(200):
            torch.zeros(2) + 1
            clock.now += 1.0
            watched.step()
    assert recorded[0] == 4
    assert 45 <= recorded[1] <= 60
    assert (len(recorded) - 1) * 5.0 <= 0.1 * clock.now


def test_the_step_is_charged_for_what_recording_it_took_longer():
    clock, recorded = Clock(), []
    with loop.Monitor(every=10, warmup=5, max_overhead=0.1, clock=clock) as watched:
        for _ in range(100):
            torch.zeros(2) + 1
            clock.now += 9.0 if live.is_recording() else 1.0
            watched.step()
            if watched.recorded_step not in recorded:
                recorded.append(watched.recorded_step)
    assert recorded[1] == 6
    assert 74 <= recorded[2] <= 90  # 8 seconds more than a step, at a tenth of the time


def test_a_job_of_many_ranks_records_the_same_steps_whatever_it_costs(monkeypatch, caplog):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    clock, recorded = Clock(), []

    def dear(figures, step):
        recorded.append(step)
        clock.now += 5.0

    with loop.Monitor(every=10, warmup=3, max_overhead=0.1, loggers=dear, clock=clock) as watched:
        for _ in range(50):
            torch.zeros(2) + 1
            clock.now += 1.0
            watched.step()
    assert recorded == [4, 14, 24, 34, 44]
    assert caplog.text.count("are not pushed back in a job of many ranks") == 1


def test_between_recordings_nothing_is_imported_or_called():
    code = """
import sys, stridewise
watched = stridewise.monitor(warmup=1000)
for _ in range(900):
    watched.step()
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_over_budget_there_is_a_warning_at_the_line_of_the_loop():
    with pytest.warns(LayoutWarning, match="Over budget at step 3: copies: 1 a step, the budget allows 0") as caught:
        watch(5, budget="copies=0")
    assert caught[0].filename == __file__


def test_or_an_exception_with_the_lines():
    with pytest.raises(BudgetExceeded, match="Over budget at step 3") as caught:
        watch(5, budget="copies=0,forbid=SW114", on_excess="raise")
    assert [line.partition(":")[0] for line in caught.value.lines] == ["copies", "forbid"]
    assert caught.value.step == 3
    assert caught.value.report.totals.copies == 1
    watch(5, budget="copies=1", on_excess="raise")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "forbid=SW3"}, "forbid names SW3, which only `stridewise lint` finds"),
        ({"budget": "forbid=SW501"}, "forbid names SW501, which only `run` and `trace` have, with --compiled"),
        ({"budget": "forbid=SW114", "ignore": "SW1"}, "forbid names SW114, which ignore leaves out of the report"),
    ],
    ids=str,
)
def test_a_budget_that_could_never_be_exceeded_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        stridewise.monitor(**options)


def test_what_on_report_raises_ends_the_loop():
    def stop(report, step):
        raise RuntimeError(f"enough at {step}")

    with pytest.raises(RuntimeError, match="enough at 3"):
        watch(5, on_report=stop)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 1},
        {"warmup": -1},
        {"max_overhead": 0},
        {"budget": "copies"},
        {"on_excess": "explode"},
        {"loggers": [3]},
        {"folder": ".", "formats": ["pdf"]},
        {"folder": ".", "keep": 0},
    ],
    ids=str,
)
def test_options_without_sense_are_refused(options):
    with pytest.raises(UsageError):
        stridewise.monitor(**options)


# -- files -------------------------------------------------------------------------------------------------------------


def test_reports_and_recordings_are_kept_in_a_folder(tmp_path):
    folder = tmp_path / "new" / "reports"
    watched, recorded, _ = watch(12, every=2, folder=folder, formats=["json"], recordings=True, keep=2)
    assert recorded == [3, 5, 7, 9, 11]
    assert sorted(path.name for path in folder.iterdir()) == [
        "stridewise-step-000009.json",
        "stridewise-step-000009.json.gz",
        "stridewise-step-000011.json",
        "stridewise-step-000011.json.gz",
    ]
    assert json.loads((folder / "stridewise-step-000011.json").read_text())["totals"]["copies"] == 1
    assert stridewise.analyze(folder / "stridewise-step-000011.json.gz").totals == watched.report.totals


def test_the_page_is_written_too(tmp_path):
    watch(4, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "stridewise-step-000003.html",
        "stridewise-step-000003.json",
    ]
    assert "x.reshape(-1, 32)" in (tmp_path / "stridewise-step-000003.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_keeps_its_recording_and_rank_0_the_report(rank, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    watch(6, every=2, folder=tmp_path, formats=["json"], keep=1)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    report = ["stridewise-step-000005.json"] if rank == 0 else []
    assert files == sorted([*report, f"stridewise-step-000005/rank{rank}.json.gz"])
    assert not (tmp_path / "stridewise-step-000003").exists()


def test_a_folder_that_cannot_be_written_costs_the_files_only(tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    _, recorded, _ = watch(6, every=2, folder=tmp_path / "taken", formats=["json"])
    assert recorded == [3, 5]
    assert caplog.text.count("no more files are written") == 1


# -- the loop is never broken ------------------------------------------------------------------------------------------


def test_a_defect_of_ours_turns_it_off_and_is_logged_once(monkeypatch, caplog):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(loop, "analyze_trace", broken)
    watched, recorded, losses = watch(9, every=2)
    assert (recorded, len(losses)) == ([], 9)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a defect" in caplog.text
    assert watched.notes == ["the monitor failed, and is off: see the log"]


def test_a_logger_that_fails_is_told_nothing_more(caplog):
    told = []

    def fails(figures, step):
        raise OSError("the network is down")

    _, recorded, _ = watch(8, every=2, loggers=[fails, lambda figures, step: told.append(step)])
    assert recorded == told == [3, 5, 7]
    assert caplog.text.count("a logger failed") == 1
    assert "the network is down" in caplog.text


def test_while_another_profiler_runs_its_turn_is_skipped():
    training, watched = Training(), stridewise.monitor(every=4, warmup=2, max_overhead=None)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(4):
            training.step()
            watched.step()
    assert profiler.events()
    assert watched.report is None
    for _ in range(4):
        training.step()
        watched.step()
    assert watched.recorded_step == 7
    assert watched.notes == ["step 3 was not recorded: another profiler is running"]
    watched.close()


def test_the_program_may_record_in_a_recorded_step():
    training = Training()
    with stridewise.monitor(warmup=2, max_overhead=None) as watched:
        for number in range(8):
            if number == 2:
                assert live.is_recording()
                with stridewise.record() as own:
                    training.step()
            else:
                training.step()
            watched.step()
    assert stridewise.analyze(own).totals.copies == 1
    assert watched.recorded_step == 5
    assert "profiler of its own" in watched.notes[0]


def test_why_a_step_was_not_recorded_is_told_where_other_threads_are_not_seen(monkeypatch):
    monkeypatch.setattr(private, "all_threads_config", lambda: None)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        test_the_program_may_record_in_a_recorded_step()
    finally:
        over.set()
        thread.join()


def test_two_monitors_do_not_meet():
    training = Training()
    one = stridewise.monitor(warmup=2, every=4, max_overhead=None)
    other = stridewise.monitor(warmup=2, every=3, max_overhead=None)
    with one, other:
        for _ in range(6):
            training.step()
            one.step()
            other.step()
    assert (one.recorded_step, other.recorded_step) == (3, 6)


def test_an_interruption_in_a_recorded_step_goes_through():
    training = Training()
    watched = stridewise.monitor(warmup=1)

    def interrupted() -> None:
        with watched:
            for number in range(4):
                if number == 1:
                    assert live.is_recording()
                    raise KeyboardInterrupt
                training.step()
                watched.step()

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    assert not live.is_recording()
    assert torch._C._len_torch_function_stack() == 0
    assert watched.report is None
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not any("stridewise/recorder" in name for name in frames)


def test_a_step_that_another_thread_ends_goes_on_where_it_began():
    training, watched = Training(), stridewise.monitor(warmup=1, max_overhead=None)
    training.step()
    watched.step()
    assert live.is_recording()
    thread = threading.Thread(target=watched.step)
    thread.start()
    thread.join()
    assert live.is_recording()
    training.step()
    watched.step()
    assert watched.recorded_step == 3
    watched.close()


def test_steps_inside_one_annotation_are_recorded_once(caplog):
    training = Training()
    with stridewise.monitor(warmup=2, every=2, max_overhead=None) as watched:
        for _ in range(8):
            with record_function("my step"):
                training.step()
                watched.step()
    assert watched.recorded_step == 3
    assert "end steps outside of record_function blocks" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_of_the_loop_records_nothing():
    training, watched = Training(), stridewise.monitor(warmup=2)
    training.step()
    watched.step()
    if (child := os.fork()) == 0:
        for _ in range(3):
            watched.step()
        os._exit(live.is_recording() or watched.report is not None)
    assert os.waitpid(child, 0)[1] == 0
    watched.close()


def test_stridewise_run_records_and_the_monitor_leaves_it_to_that(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, stridewise\n"
        "model = torch.nn.Linear(8, 8)\n"
        "with stridewise.monitor(warmup=1, every=2, loggers=print) as watched:\n"
        "    for _ in range(6):\n"
        "        for _ in range(3):\n"
        "            model(torch.randn(8, 4).t()).sum().backward()\n"
        "        watched.step()\n"
        "print('recorded', watched.recorded_step, watched.notes)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "stridewise", "run", "--format", "json", "--output", tmp_path / "out.json", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("recorded None ['`stridewise run` records this program")
    totals = json.loads((tmp_path / "out.json").read_text())["totals"]
    assert (totals["steps"], totals["steps_found"]) == (3, True)


def test_what_it_says_goes_to_the_log_of_the_package(caplog):
    caplog.set_level(logging.INFO, logger="stridewise")
    watch(2, warmup=5)
    assert [record.name for record in caplog.records] == ["stridewise"]
