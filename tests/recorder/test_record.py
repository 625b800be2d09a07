"""`record()`: what it keeps, when it starts and ends, and what it leaves as it was."""

import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import stridewise
from stridewise.errors import NestedRecording, RecordingError
from stridewise.recorder import live
from stridewise.recording.handle import Recording
from stridewise.recording.model import MARK

from .both import bits, calls_of, expressions_of, recorded, seeded
from .programs import net

CPU = [ProfilerActivity.CPU]


def python(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        env=inherited | environment,
    )


def add(times: int = 1) -> torch.Tensor:
    x = torch.ones(3)
    for _ in range(times):
        x = x + 1
    return x


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_a_recording_has_calls_sites_modules_and_tensors():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def program():
        return model(torch.randn(2, 4)).t().contiguous()

    _, recording = recorded(program)
    log = recording.trace.log
    assert calls_of(recording) == [
        "torch.randn",
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
        "torch.Tensor.t",
        "torch.Tensor.contiguous",
    ]
    assert expressions_of(recording)[3:] == [
        "model(torch.randn(2, 4)).t()",
        "model(torch.randn(2, 4)).t().contiguous()",
    ]
    assert [recording.trace.module_path(call.module_call) for call in log.calls] == [None, "0", "1", None, None]
    assert [log.modules[call.module] for call in log.module_calls] == [
        ("", "Sequential"),
        ("0", "Linear"),
        ("1", "ReLU"),
    ]
    assert sorted(log.names.values()) == ["parameter `0.bias`", "parameter `0.weight`"]
    copies = [op for op in recording.trace.ops if op.name == "aten::copy_"]
    assert [calls_of(recording)[op.call] for op in copies] == ["torch.nn.functional.linear", "torch.Tensor.contiguous"]
    (transposed,) = log.calls[4].inputs
    assert log.layouts[log.refs[transposed].layout].strides == (1, 3)


def test_calls_in_backward_and_in_hooks_are_recorded():
    def program():
        x = torch.randn(3, 4, requires_grad=True)
        y = x.sin()
        y.register_hook(lambda g: g.t().contiguous().t())
        y.sum().backward()

    _, recording = recorded(program)
    names = calls_of(recording)
    assert names.index("torch.Tensor.contiguous") > names.index("torch.Tensor.backward")
    call = names.index("torch.Tensor.contiguous")
    assert recording.trace.site(call).expression == "g.t().contiguous()"
    assert any(op.call == call and op.node >= 0 for op in recording.trace.ops)


def test_a_recording_is_empty_until_it_is_finished(tmp_path):
    with stridewise.record() as recording:
        with pytest.raises(RecordingError, match="not finished"):
            _ = recording.trace
        with pytest.raises(RecordingError, match="Save it after"):
            recording.save(tmp_path / "x.json")
        assert "being made" in repr(recording)
    assert "bytes" in repr(recording)


def test_nothing_recorded_is_a_recording():
    with stridewise.record() as recording:
        pass
    assert calls_of(recording) == []
    assert stridewise.analyze(recording).ok


def test_a_saved_recording_reads_the_same(tmp_path):
    _, recording = recorded(lambda: add(3))
    for name in ("a.json", "a.json.gz"):
        recording.save(tmp_path / name)
        again = Recording.load(tmp_path / name)
        assert again.trace.log == recording.trace.log
        assert [op.name for op in again.trace.ops] == [op.name for op in recording.trace.ops]
    keys = json.loads((tmp_path / "a.json").read_text()).keys()
    assert "stridewise" in keys
    assert not keys & {"traceName", "hostname", "distributedInfo"}


# -- starting and ending ----------------------------------------------------------------------------------------------


def test_a_recording_inside_another_is_an_error_and_the_outer_goes_on():
    with stridewise.record() as outer:
        add()
        with pytest.raises(NestedRecording, match="already"), stridewise.record():
            pass
        add()
    assert calls_of(outer).count("torch.Tensor.add") == 2


def test_two_recordings_in_a_row_are_apart():
    first, second = recorded(lambda: add(2))[1], recorded(lambda: add(3))[1]
    assert [calls_of(each).count("torch.Tensor.add") for each in (first, second)] == [2, 3]


def test_starting_by_hand_and_ending_twice():
    recorder = stridewise.record()
    recorder.start()
    add()
    recorder.stop()
    recorder.stop()
    assert calls_of(recorder.recording) == ["torch.ones", "torch.Tensor.add"]
    assert torch.overrides._get_current_function_mode_stack() == []


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_passes_through_and_what_was_recorded_is_kept(kind):
    failure = kind("mine")
    recorder = stridewise.record()

    def program():
        with recorder:
            add()
            raise failure

    with pytest.raises(kind) as caught:
        program()
    recording = recorder.recording
    assert caught.value is failure
    assert failure.__context__ is failure.__cause__ is None
    assert "torch.Tensor.add" in calls_of(recording)
    assert calls_of(recorded(add)[1])


def test_an_interrupt_in_the_middle_of_a_module_leaves_the_rest_right():
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    broken, good = nn.Sequential(nn.Identity(), Interrupted()), nn.Sequential(nn.ReLU())
    with stridewise.record() as recording:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                broken(torch.ones(2))
        good(torch.ones(2))
        add()
    trace = recording.trace
    names = calls_of(recording)
    relu = trace.log.calls[names.index("torch.nn.functional.relu")]
    assert trace.module_path(relu.module_call) == "Sequential.0"
    parent = trace.log.module_calls[trace.log.module_calls[relu.module_call].parent]
    assert parent.parent == -1
    assert trace.log.calls[-1].module_call == -1


def test_an_interrupt_in_a_module_on_its_fast_path_leaves_the_mode_on():
    class Interrupted(nn.TransformerEncoderLayer):
        def forward(self, *args, **kwargs):
            raise KeyboardInterrupt

    model = Interrupted(8, 2, 16, batch_first=True).eval()
    with stridewise.record() as recording:
        with pytest.raises(KeyboardInterrupt), torch.no_grad():
            model(torch.ones(1, 2, 8))
        nn.ReLU()(torch.ones(2))
        add()
    assert calls_of(recording)[-1] == "torch.Tensor.add"


def test_an_exception_in_a_module_ends_its_calls():
    class Fails(nn.Module):
        def forward(self, x, *, key=None):
            raise ValueError("mine")

    model = nn.Sequential(nn.Identity(), Fails())
    with stridewise.record() as recording:
        with pytest.raises(ValueError, match="mine"):
            model(torch.ones(2))
        add()
    assert recording.trace.log.calls[-1].module_call == -1
    add_op = next(op for op in recording.trace.ops if op.name == "aten::add")
    assert add_op.module_call == -1


def test_ending_in_another_thread():
    recorder = stridewise.record()
    recorder.start()
    add()
    thread = threading.Thread(target=recorder.stop)
    thread.start()
    thread.join()
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    add()
    with torch.no_grad():
        model(torch.ones(1, 2, 8))
    assert torch.overrides._get_current_function_mode_stack() == []
    assert sys.getprofile() is None
    assert calls_of(recorder.recording) == ["torch.ones", "torch.Tensor.add"]


def test_a_recording_that_can_not_be_exported_says_so(monkeypatch):
    def full(profiler):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live, "export", full)
    with pytest.raises(RecordingError, match="No space left"), stridewise.record():
        add()
    with pytest.raises(ValueError, match="mine"), stridewise.record() as recording:
        raise ValueError("mine")
    with pytest.raises(RecordingError, match="No space left"):
        _ = recording.trace
    monkeypatch.undo()
    assert calls_of(recorded(add)[1])


def test_a_start_that_fails_leaves_nothing(monkeypatch):
    monkeypatch.setattr(live, "start_profiler", lambda stack: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stridewise.record().start()
    monkeypatch.undo()
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not torch.nn.modules.module._global_forward_hooks
    assert calls_of(recorded(add)[1])


def test_a_bug_of_ours_does_not_reach_the_program(monkeypatch):
    before = bits(seeded(lambda: net()(torch.randn(2, 6))))
    with stridewise.record() as recording:
        monkeypatch.setattr(live._active.calls.frames, "find", lambda frame: 1 / 0)
        monkeypatch.setattr(live._active.modules, "_name_root", lambda module: 1 / 0)
        during = bits(seeded(lambda: net()(torch.randn(2, 6))))
        monkeypatch.undo()
        add()
    assert during == before
    assert "torch.Tensor.add" in calls_of(recording)
    assert [note for note in recording.trace.notes if "could not be logged, the first for: ZeroDivisionError" in note]


def test_the_number_of_operators_must_be_positive():
    with pytest.raises(RecordingError, match="max_ops"):
        stridewise.record(max_ops=0)


# -- max_ops ----------------------------------------------------------------------------------------------------------


def test_at_max_ops_recording_ends_and_the_program_goes_on():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def program():
        x = add(500)
        with torch.no_grad():
            return x, model(torch.full((1, 2, 8), 0.5)), net()(torch.randn(2, 6))

    before = bits(seeded(program))
    during, recording = recorded(program, max_ops=300)
    assert bits(during) == before
    assert calls_of(recording).count("torch.Tensor.add") < 110
    ended, later = recording.trace.notes[:2]
    assert ended == "Recording ended after about 300 operators, before the program did (see --max-ops)."
    assert int(later.split()[0]) > 390
    assert later.endswith("later calls were seen and not recorded.")
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not torch.nn.modules.module._global_forward_hooks


def test_at_max_ops_the_profiler_has_stopped_and_another_may_start():
    with stridewise.record(max_ops=30) as recording:
        add(100)
        assert not torch.autograd.profiler._is_profiler_enabled
        with profile(activities=CPU) as own:
            add(5)
        assert sum(event.key == "aten::add" for event in own.events()) == 5
    assert calls_of(recording)


def test_at_max_ops_the_profilers_memory_is_given_back():
    recorder = stridewise.record(max_ops=300)
    with recorder:
        add(200)
        add(200)
        assert recorder._profiler is None
        rows = len(recorder.calls.calls)
        add(500)
        assert len(recorder.calls.calls) == rows


def test_max_ops_reached_on_another_thread():
    with stridewise.record(max_ops=300) as recording:
        thread = threading.Thread(target=add, args=(500,))
        thread.start()
        thread.join()
        add(5)
    assert any("Recording ended after" in note for note in recording.trace.notes)
    assert torch.overrides._get_current_function_mode_stack() == []
    recording.trace.log.check()


def test_one_call_with_very_many_tensors_fills_the_log(monkeypatch):
    many = [torch.ones(1) for _ in range(2000)]
    with stridewise.record(max_ops=300) as recording:
        for _ in range(4):
            torch._foreach_add_(many, 1.0)
    assert any("Recording ended after" in note for note in recording.trace.notes)
    assert len(recording.trace.log.refs) < 5000


# -- other profilers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["active", "warmup"])
def test_recording_inside_a_profiler_is_an_error_and_the_profiler_is_unharmed(waits):
    plan = schedule(wait=0, warmup=1, active=1) if waits == "warmup" else None
    with profile(activities=CPU, schedule=plan, acc_events=True) as own:
        with pytest.raises(NestedRecording, match="profiler"):
            stridewise.record().start()
        if plan:
            own.step()
        add(4)
    assert sum(event.key == "aten::add" for event in own.events()) == 4


def test_recording_while_another_thread_profiles_is_an_error():
    started, go_on, seen = threading.Event(), threading.Event(), []

    def other():
        with profile(activities=CPU) as own:
            started.set()
            go_on.wait()
            add(3)
        seen.append(sum(event.key == "aten::add" for event in own.events()))

    thread = threading.Thread(target=other)
    thread.start()
    started.wait()
    try:
        with pytest.raises(NestedRecording):
            stridewise.record().start()
    finally:
        go_on.set()
        thread.join()
    assert seen == [3]


def test_a_profiler_that_waits_may_be_recorded_beside():
    own = profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=1), acc_events=True)
    own.start()
    assert calls_of(recorded(add)[1])
    for _ in range(3):
        own.step()
        add(2)
    own.stop()
    assert sum(event.key == "aten::add" for event in own.events()) == 2


@pytest.mark.parametrize("start", ["profile", "autograd", "schedule"])
def test_a_profiler_that_the_program_starts_ends_recording(start):
    def own():
        if start == "autograd":
            return torch.autograd.profiler.profile()
        return profile(activities=CPU, schedule=schedule(wait=0, warmup=1, active=1) if start == "schedule" else None)

    with stridewise.record() as recording:
        add(2)
        with own() as profiler:
            if start == "schedule":
                profiler.step()
            add(3)
        add(4)
    events = profiler.function_events if start == "autograd" else profiler.events()
    assert sum(event.key == "aten::add" for event in events) == 3
    assert calls_of(recording).count("torch.Tensor.add") == 2
    assert "The program started a profiler of its own: recording ended there." in recording.trace.notes
    assert not [event for event in events if event.key.startswith(MARK)]
    assert calls_of(recorded(add)[1])


def test_a_profiler_that_can_not_start_ends_recording_and_fails_as_before():
    def program():
        try:
            with torch.autograd.profiler.emit_nvtx():
                add()
        except Exception as error:
            return type(error), str(error)

    before = program()
    if before is None:
        pytest.skip("this torch has nvtx")
    with stridewise.record() as recording:
        add()
        assert program() == before
    assert calls_of(recording)[:2] == ["torch.ones", "torch.Tensor.add"]


# -- what is left as it was -------------------------------------------------------------------------------------------


def test_nothing_of_ours_is_left_in_torch():
    import torch._dynamo.eval_frame
    from torch.nn.modules import module
    from torch.optim import optimizer

    tables = [
        *(table for name, table in vars(module).items() if name.startswith("_global_") and isinstance(table, dict)),
        optimizer._global_optimizer_post_hooks,
    ]

    def state():
        return (
            [dict(table) for table in tables],
            torch._dynamo.eval_frame._maybe_set_eval_frame,
            torch.autograd._engine_run_backward,
            torch.autograd.profiler._prepare_profiler,
            torch.autograd.profiler._enable_profiler,
            torch.autograd.function.BackwardCFunction.__dict__["apply"],
            module._has_any_global_hook,
            threading.Thread.__dict__["_bootstrap_inner"],
            list(sys.meta_path),
            threading.getprofile(),
            sys.getprofile(),
            dict(os.environ),
            torch.overrides._get_current_function_mode_stack(),
            torch.get_num_threads(),
            gc.isenabled(),
        )

    before = state()
    recorded(lambda: net()(torch.randn(2, 6)).sum().backward())
    assert state() == before


def test_what_the_program_hooks_in_during_recording_stays():
    from torch.nn.modules import module

    seen = []
    original = torch.autograd._engine_run_backward
    with stridewise.record():
        inner = torch.autograd._engine_run_backward
        torch.autograd._engine_run_backward = lambda *a, **k: (seen.append(1), inner(*a, **k))[1]
        handle = module.register_module_forward_pre_hook(lambda m, a: seen.append(2))
    try:
        torch.ones(2, requires_grad=True).sum().backward()
        nn.Identity()(torch.ones(2))
        assert seen == [1, 2]
    finally:
        handle.remove()
        torch.autograd._engine_run_backward = original
    assert not module._global_forward_pre_hooks


def test_a_program_that_hooks_modules_globally_keeps_its_order_around_compiled_regions():
    from torch.nn.modules import module

    handle = module.register_module_forward_pre_hook(lambda m, a: None)
    try:
        with stridewise.record() as recording:
            recorder = live._active
            with recorder.modules.uninstalled():
                assert list(module._global_forward_pre_hooks) == [handle.id]
                with recorder.modules.uninstalled():
                    pass
                assert list(module._global_forward_pre_hooks) == [handle.id]
            assert len(module._global_forward_pre_hooks) == 2
    finally:
        handle.remove()
    assert calls_of(recording) == []


def test_tensors_die_when_they_would():
    def program():
        order = []
        a = torch.ones(2)
        b = a + 1
        c = torch.cat([a, b])
        weakref.finalize(a, order.append, "a")
        weakref.finalize(b, order.append, "b")
        weakref.finalize(c.untyped_storage(), order.append, "c's storage")
        view = c[1:]
        del a
        order.append(1)
        del c
        order.append(2)
        nn.ReLU()(b)
        del b
        order.append(3)
        del view
        order.append(4)
        return order

    before = program()
    assert before == ["a", 1, 2, "b", 3, "c's storage", 4]
    during, _ = recorded(program)
    assert during == before


def test_no_module_closure_or_function_is_kept():
    def program():
        watched = []
        model = net()
        big = torch.ones(3)
        watched += [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(big)]

        def function(x, kept=big):
            return x + big

        watched.append(weakref.ref(function))
        function(big)
        torch.vmap(function)(torch.ones(2, 3))
        namespace = {"torch": torch, "big": big}
        exec("y = torch.add(big, 1)", namespace)
        watched.append(weakref.ref(namespace["y"]))
        model(torch.ones(2, 6)).sum().backward()
        return watched

    with stridewise.record():
        watched = program()
        gc.collect()
        assert [ref() for ref in watched] == [None] * len(watched)


def test_large_tensors_do_not_pile_up():
    code = """
        import os, resource, sys
        import torch
        torch.set_num_threads(1)
        def program():
            x = torch.ones(4_000_000, requires_grad=True)
            for _ in range(30):
                y = (x * 2).view(2000, 2000).t().contiguous()
                y.sum().backward()
        program()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        import stridewise
        from stridewise.recorder import live
        with stridewise.record():
            program()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    # Without the threshold, glibc's heap grows under torch's profiler alone: its small blocks lie between large ones.
    result = python(code, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="0")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 80_000  # kB: the profiler itself and what was recorded, not thirty times three tensors


def test_stdout_and_stderr_stay_empty_and_the_environment_as_it_was():
    code = """
        import os
        import stridewise, torch
        before = dict(os.environ)
        with stridewise.record() as recording:
            model = torch.nn.Linear(3, 3)
            model(torch.ones(2, 3)).sum().backward()
        assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
        assert recording.trace.ops
        with stridewise.record() as recording:
            pass
    """
    result = python(code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    result = python(code, KINETO_LOG_LEVEL="5")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_an_uncaught_exception_and_an_exit_in_the_middle():
    code = "import stridewise, torch\nstridewise.record().start()\ntorch.ones(2) + 1\n"
    result = python(code + "raise SystemExit(7)")
    assert (result.returncode, result.stdout, result.stderr) == (7, "", "")
    result = python(code + "with stridewise.record(): pass")
    assert result.returncode == 1
    assert result.stderr.strip().endswith("End it before another starts; they can't be nested.")
