"""Threads, pools and forked processes of the program."""

import json
import multiprocessing
import os
import queue
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

import stridewise
from stridewise.errors import RecordingError
from stridewise.recorder.live import Recorder
from stridewise.recorder.private import all_threads_config
from stridewise.recording.build import LEFT_OUT

from .both import calls_of, expressions_of, recorded
from .programs import net

sees_threads = pytest.mark.skipif(all_threads_config() is None, reason="this torch's profiler sees one thread")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@sees_threads
def test_forward_and_backward_in_threads_have_sites_and_their_forward_calls():
    model = nn.Linear(6, 6)

    def one() -> None:
        y = model(torch.randn(3, 6)).sin()
        y.t().contiguous().sum().backward()

    _, recording = recorded(lambda: run_all([threading.Thread(target=one) for _ in range(8)]))
    trace = recording.trace
    assert calls_of(recording).count("torch.Tensor.contiguous") == 8
    assert expressions_of(recording).count("y.t().contiguous()") == 8
    copies = [op for op in trace.ops if op.name == "aten::copy_" and op.node < 0]
    assert Counter(trace.site(op.call).expression for op in copies)["y.t().contiguous()"] == 8
    ops = trace.ops
    nodes = ops.starting("autograd::engine::evaluate_function: SinBackward")
    assert len(nodes) == 8
    threads = {trace.forward_threads[ops.args[node].forward_thread or 0] for node in nodes}
    assert {ops.thread[node] for node in nodes} == threads


@sees_threads
def test_threads_that_are_at_work_on_something_else_can_be_left_out():
    stop, begun, idle = threading.Event(), threading.Event(), queue.Queue()

    def at_work() -> None:
        mine = torch.ones(4, 8)
        while not stop.wait(0.001):
            mine.t().contiguous()
            begun.set()

    def serve() -> None:
        idle.get()().t().contiguous()

    left, server = threading.Thread(target=at_work), threading.Thread(target=serve)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        run = [left, server]
        for thread in run:
            thread.start()
        try:
            reports = []
            for leaves_out in (True, False):
                recorder = Recorder(begins_step=True, leaves_out_busy=leaves_out)
                with recorder:
                    begun.clear()
                    torch.ones(2, 3).t().contiguous()
                    pool.submit(lambda: torch.ones(3, 5).t().contiguous()).result()
                    if leaves_out:
                        idle.put(lambda: torch.ones(5, 7))
                        server.join()
                        run_all([threading.Thread(target=lambda: torch.ones(7, 9).t().contiguous())])
                    assert begun.wait(30)
                    recorder.end_step()
                reports.append(stridewise.analyze(recorder.recording))
        finally:
            stop.set()
            left.join()
    first, second = reports
    assert sorted(copy.sizes for copy in first.copies) == [(3, 2), (5, 3), (7, 5), (9, 7)]
    assert LEFT_OUT in first.notes
    assert (8, 4) in [copy.sizes for copy in second.copies]
    assert LEFT_OUT not in second.notes


@sees_threads
def test_each_thread_has_its_own_stack_of_modules():
    barrier = threading.Barrier(2, timeout=30)

    class Waits(nn.Module):
        def forward(self, x):
            barrier.wait()
            x = x + 1
            barrier.wait()
            return x

    first, second = nn.Sequential(Waits()), nn.Sequential(nn.Sequential(Waits()))
    threads = [threading.Thread(target=model, args=(torch.ones(2),)) for model in (first, second)]
    _, recording = recorded(lambda: run_all(threads))
    trace = recording.trace
    adds = [call for call in trace.log.calls if trace.log.functions[call.function] == "torch.Tensor.add"]
    assert sorted(trace.module_path(call.module_call) for call in adds) == ["Sequential.0", "Sequential.0.0"]


def test_what_a_thread_logs_while_recording_ends_is_consistent():
    stop = threading.Event()
    model = net()

    def busy() -> None:
        while not stop.is_set():
            model(torch.randn(2, 6)).t().contiguous()

    for _ in range(5):
        recorder = stridewise.record()
        recorder.start()
        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            model(torch.randn(2, 6))
        recorder.stop()
        assert calls_of(recorder.recording)
        recorder.recording.trace.log.check()
        stop.set()
        for thread in threads:
            thread.join()
        stop.clear()


def test_a_thread_that_outlives_the_recording_is_as_before_again():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, left, results = torch.randn(1, 2, 8), threading.Event(), {}
    with torch.no_grad():
        expected = model(x)

    def outlives() -> None:
        torch.ones(2) + 1
        started.set()
        left.wait()
        torch.ones(2) + 1
        results["modes"] = torch.overrides._get_current_function_mode_stack()
        results["profile"] = sys.getprofile()
        with torch.no_grad():
            results["y"] = model(x)

    started = threading.Event()
    thread = threading.Thread(target=outlives)
    with stridewise.record():
        thread.start()
        started.wait()
    left.set()
    thread.join()
    assert results["modes"] == []
    assert results["profile"] is None
    assert torch.equal(results["y"], expected)


def test_a_thread_that_outlives_the_recording_and_first_runs_a_module():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, left, started, results = torch.randn(1, 2, 8), threading.Event(), threading.Event(), []
    with torch.no_grad():
        expected = model(x)

    def outlives() -> None:
        torch.set_grad_enabled(False)
        started.set()
        left.wait()
        results.append(model(x))

    thread = threading.Thread(target=outlives)
    with stridewise.record():
        thread.start()
        started.wait()
    left.set()
    thread.join()
    assert torch.equal(results[0], expected)


@sees_threads
def test_a_pool_that_was_started_before_and_one_that_lives_on():
    with ThreadPoolExecutor(1) as early, ThreadPoolExecutor(1) as late:
        early.submit(torch.ones, 2).result()

        def copy() -> list[float]:
            return torch.arange(6.0).view(2, 3).t().contiguous().flatten().tolist()

        with stridewise.record() as recording:
            during = [early.submit(copy).result(), late.submit(copy).result()]
        after = [early.submit(copy).result(), late.submit(copy).result()]
        modes = [pool.submit(torch.overrides._get_current_function_mode_stack).result() for pool in (early, late)]
    assert during == after
    assert modes == [[], []]
    copies = [op for op in recording.trace.ops if op.name == "aten::copy_"]
    assert len(copies) == 2
    assert len([op for op in copies if op.call >= 0]) == 1


def test_the_programs_own_profile_functions_are_kept():
    events: list[str] = []

    def own(frame, event, argument):
        events.append(event)

    def one() -> None:
        assert sys.getprofile() is own
        torch.ones(2) + 1

    threading.setprofile(own)
    try:
        with stridewise.record() as recording:
            assert threading.getprofile() is own
            run_all([threading.Thread(target=one)])
            other = lambda *event: None  # noqa: E731
            threading.setprofile(other)
        assert threading.getprofile() is other
    finally:
        threading.setprofile(None)
    assert events
    if all_threads_config() is not None:
        assert calls_of(recording) == ["torch.ones", "torch.Tensor.add"]


def test_a_profile_function_of_a_thread_that_outlives_the_recording_is_kept():
    left, started, results = threading.Event(), threading.Event(), []

    def own(frame, event, argument):
        pass

    def outlives() -> None:
        sys.setprofile(own)
        started.set()
        left.wait()
        torch.ones(2) + 1
        results.append(sys.getprofile())
        sys.setprofile(None)
        torch.ones(2) + 1
        results.append(torch.overrides._get_current_function_mode_stack())

    thread = threading.Thread(target=outlives)
    with stridewise.record():
        thread.start()
        started.wait()
    left.set()
    thread.join()
    assert results == [own, []]


def test_without_threads_in_the_profiler_a_note_says_so(monkeypatch):
    from stridewise.recorder import private

    monkeypatch.setattr(private, "all_threads_config", lambda: None)
    stop = threading.Event()

    def one() -> None:
        torch.ones(2) + 1
        stop.wait()

    thread = threading.Thread(target=one)
    with stridewise.record() as recording:
        thread.start()
        torch.ones(2)
    stop.set()
    thread.join()
    assert calls_of(recording) == ["torch.ones"]
    assert any("sees one thread" in note for note in recording.trace.notes)


# -- processes --------------------------------------------------------------------------------------------------------


def in_child(work) -> object:
    """What a forked child's `work()` gives, through a pipe."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = repr(error)
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = json.load(pipe)
    assert os.waitpid(child, 0)[1] == 0
    return answer


@forks
def test_a_forked_child_neither_logs_nor_exports(tmp_path):
    recorder = stridewise.record()
    recorder.start()
    recording = recorder.recording
    torch.ones(2) + 1

    def child():
        before = len(recorder.calls.calls)
        nn.Linear(2, 2)(torch.ones(2)).sum().backward()
        recorder.stop()
        try:
            recording.save(tmp_path / "child.json")
        except RecordingError as error:
            refusal = str(error)
        modes = len(torch.overrides._get_current_function_mode_stack())
        return len(recorder.calls.calls) - before, modes, refusal, os.listdir(tmp_path)

    logged, modes, refusal, files = in_child(child)
    torch.ones(2) * 2
    recorder.stop()
    assert (logged, modes, files) == (0, 0, [])
    assert refusal == "The recording goes on in the process that this one was forked from."
    assert calls_of(recording) == ["torch.ones", "torch.Tensor.add", "torch.ones", "torch.Tensor.mul"]


@forks
def test_a_forked_child_may_profile_and_record_for_itself():
    with stridewise.record() as recording:
        torch.ones(2) + 1

        def profiles():
            for _ in range(2):
                with profile(activities=[ProfilerActivity.CPU]) as own:
                    torch.ones(2) + 1
            return [event.key for event in own.events()].count("aten::add")

        def records():
            with stridewise.record() as inner:
                torch.ones(2) * 2
            return calls_of(inner)

        assert in_child(profiles) == 1
        assert in_child(records) == ["torch.ones", "torch.Tensor.mul"]
    assert calls_of(recording) == ["torch.ones", "torch.Tensor.add"]


class Squares(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2, 3), float(index)).t().contiguous() ** 2


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_workers_of_a_data_loader():
    loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    before = [batch.tolist() for batch in loader]
    with stridewise.record() as recording:
        during = [batch.tolist() for batch in loader]
    assert during == before
    assert "torch.Tensor.contiguous" not in calls_of(recording)


def test_a_spawned_process():
    with stridewise.record() as recording:
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=len, args=([],))
        child.start()
        child.join()
        assert child.exitcode == 0
    assert calls_of(recording) == []
