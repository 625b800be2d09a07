"""The private points of torch and Python: which exist here, and that recording works without each of them."""

import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

import stridewise
from stridewise.recorder import compiler, private

from .both import bits, calls_of, expressions_of, recorded, seeded

TRIED_ON = "2.13"
POINTS = {
    "_RecordFunctionFast": (torch._C._profiler, "_RecordFunctionFast"),
    "_profiler_enabled": (torch._C._autograd, "_profiler_enabled"),
    "_is_profiler_enabled": (torch.autograd.profiler, "_is_profiler_enabled"),
    "_prepare_profiler": (torch.autograd.profiler, "_prepare_profiler"),
    "_enable_profiler": (torch.autograd.profiler, "_enable_profiler"),
    "_enable_record_function": (torch._C._autograd, "_enable_record_function"),
    "_disable_profiler": (torch._C._autograd, "_disable_profiler"),
    "_engine_run_backward": (torch.autograd, "_engine_run_backward"),
    "_current_graph_task_id": (torch._C, "_current_graph_task_id"),
    "_maybe_set_eval_frame": (torch._dynamo.eval_frame, "_maybe_set_eval_frame"),
    "BackwardCFunction.apply": (torch.autograd.function.BackwardCFunction, "apply"),
    "_has_any_global_hook": (nn.modules.module, "_has_any_global_hook"),
    "_GLOBAL_DEVICE_CONTEXT": (torch, "_GLOBAL_DEVICE_CONTEXT"),
    "_push_mode": (torch.overrides, "_push_mode"),
    "_pop_mode": (torch.overrides, "_pop_mode"),
    "_len_torch_function_stack": (torch._C, "_len_torch_function_stack"),
    "_get_tracing_state": (torch._C, "_get_tracing_state"),
    "Thread._bootstrap_inner": (threading.Thread, "_bootstrap_inner"),
}


@pytest.mark.skipif(not torch.__version__.startswith(TRIED_ON), reason=f"known of torch {TRIED_ON} only")
@pytest.mark.parametrize("name", POINTS)
def test_a_point_exists_on_the_version_that_it_was_tried_on(name):
    owner, attribute = POINTS[name]
    assert hasattr(owner, attribute)


def test_threads_are_profiled_on_the_version_that_it_was_tried_on():
    if torch.__version__.startswith(TRIED_ON):
        assert private.all_threads_config() is not None


def program():
    x = torch.randn(3, 4, requires_grad=True)
    y = checkpoint(lambda v: v.sin().t().contiguous(), nn.Linear(4, 4)(x), use_reentrant=False)
    y.sum().backward()
    return y, x.grad


def copies(recording):
    return len([op for op in recording.trace.ops if op.name == "aten::copy_"])


def without(monkeypatch, *names):
    for name in names:
        owner, attribute = POINTS[name]
        monkeypatch.delattr(owner, attribute)


def test_without_cheap_marks_copies_are_counted_and_have_no_lines(monkeypatch):
    _, whole = recorded(program)
    before = bits(seeded(program))
    monkeypatch.setattr(private, "_fast_mark", None)
    during, recording = recorded(program)
    assert bits(during) == before
    assert copies(recording) == copies(whole) > 0
    assert calls_of(recording) == []
    assert any("have no source lines" in note for note in recording.trace.notes)
    report = stridewise.analyze(recording)
    assert report.totals.copies == stridewise.analyze(whole).totals.copies
    with stridewise.record(max_ops=1) as recording:
        recording.step()
    assert recording.trace.ops is not None


def test_without_the_engines_function_backward_is_recorded_without_its_calls(monkeypatch):
    before = bits(seeded(program))
    with private.mode_during_backward(object(), lambda: True) as possible:
        assert possible
    monkeypatch.delattr(torch.autograd, "_engine_run_backward")
    with private.mode_during_backward(object(), lambda: True) as possible:
        assert not possible
    monkeypatch.undo()
    monkeypatch.setattr(private, "mode_during_backward", lambda mode, wanted: private.contextlib.nullcontext(False))
    during, recording = recorded(program)
    assert bits(during) == before
    assert expressions_of(recording).count("v.sin()") == 1
    monkeypatch.undo()
    _, recording = recorded(program)
    assert expressions_of(recording).count("v.sin()") == 2


def test_without_dynamos_function_a_recording_still_works(monkeypatch):
    monkeypatch.setattr(compiler, "SET_CALLBACK", "_no_such_function")
    compiled = torch.compile(lambda: torch.randn(2, 3).t().contiguous() + 1, backend="eager")
    before, compiled_before = bits(seeded(program)), bits(seeded(compiled))
    during, recording = recorded(lambda: (program(), compiled()))
    assert bits(during)[0] == before
    assert copies(recording) > 0
    assert any("torch.compile can't be watched" in note for note in recording.trace.notes)
    assert calls_of(recording) == []
    assert bits(seeded(compiled)) == compiled_before
    assert torch.overrides._get_current_function_mode_stack() == []


def test_without_profilers_for_all_threads(monkeypatch):
    monkeypatch.setattr(private, "all_threads_config", lambda: None)
    before = bits(seeded(program))
    during, recording = recorded(program)
    assert bits(during) == before
    assert copies(recording) > 0
    assert calls_of(recording)


def test_without_any_other_point_a_recording_still_works():
    # In a process of its own, and one point at a time: torch itself needs some of these.
    code = """
        import threading
        import torch, stridewise
        from stridewise.recorder import private
        points = [
            (torch._C._autograd, "_profiler_enabled"),
            (torch.autograd.profiler, "_is_profiler_enabled"),
            (torch._C._autograd, "_enable_record_function"),
            (torch._C, "_current_graph_task_id"),
            (torch.nn.modules.module, "_has_any_global_hook"),
            (torch, "_GLOBAL_DEVICE_CONTEXT"),
            (torch.cuda.CUDAGraph, "replay"),
        ]
        def record():
            with stridewise.record() as recording:
                x = torch.randn(2, 3, requires_grad=True)
                (torch.nn.Linear(3, 3)(x).t().contiguous() * 1).sum().backward()
            log = recording.trace.log
            log.check()
            assert "torch.Tensor.contiguous" in [log.functions[call.function] for call in log.calls]
        record()
        for owner, name in points:
            original = vars(owner)[name]
            delattr(owner, name)
            record()
            setattr(owner, name, original)
            print(name)
        bootstrap = threading.Thread._bootstrap_inner
        del threading.Thread._bootstrap_inner
        threading.Thread.__getattr__ = lambda self, name: bootstrap.__get__(self)
        with stridewise.record() as recording:
            thread = threading.Thread(target=torch.ones, args=(2,))
            thread.start()
            thread.join()
        assert [op.name for op in recording.trace.ops].count("aten::ones") == 1
        print("threads")
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) == 8


def test_a_replayed_cuda_graph_is_one_call(monkeypatch):
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: torch.ones(2) + 1)
    with stridewise.record() as recording:
        torch.cuda.CUDAGraph.replay(object())
    assert calls_of(recording)[0] == "torch.cuda.CUDAGraph.replay"
    assert recording.trace.site(0).expression == "torch.cuda.CUDAGraph.replay(object())"
    monkeypatch.delattr(torch.cuda.CUDAGraph, "replay")
    assert calls_of(recorded(program)[1])


def test_replaced_gives_way_to_what_was_put_in_its_own_place():
    class Owner:
        @staticmethod
        def name() -> int:
            return 1

    original = vars(Owner)["name"]
    with private.replaced(Owner, "name", lambda: 2):
        assert Owner.name() == 2
    assert vars(Owner)["name"] is original
    with private.replaced(Owner, "name", lambda: 2):
        theirs = Owner.name = lambda: 3
    assert Owner.name is theirs


def test_a_mode_is_pushed_below_the_programs_and_above_the_default_device():
    from .programs import Functions

    mode, own = Functions(), Functions()
    torch.set_default_device("cpu")
    try:
        with own, torch.device("meta"):
            private.push_mode(mode)
            kinds = [type(entry).__name__ for entry in torch.overrides._get_current_function_mode_stack()]
            assert kinds == ["DeviceContext", "Functions", "Functions", "DeviceContext"]
            assert torch.overrides._get_current_function_mode_stack()[1] is mode
            assert private.remove_mode(mode)
            assert not private.remove_mode(mode)
    finally:
        torch.set_default_device(None)
