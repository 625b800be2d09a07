"""Programs that a recorder could change: all they can see is bit for bit what it is without."""

import ast
import contextlib
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import stridewise
from stridewise.recorder.modules import FAST_PATH_MODULES

from .both import bits, calls_of, ops_of, plain_ops, recorded, seeded
from .programs import OPS_VARY, PROGRAMS, Functions, Sized, dispatch, net, work


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_nothing_of_recording(name):
    program = PROGRAMS[name]
    before, again = bits(seeded(program)), bits(seeded(program))
    assert before == again, "the program itself is not deterministic: it tells nothing"
    during, recording = recorded(program)
    assert bits(during) == before
    assert bits(seeded(program)) == before
    recording.trace.log.check()
    assert not [note for note in recording.trace.notes if "could not be logged" in note]
    if name not in OPS_VARY:
        assert ops_of(recording) == plain_ops(program)


# -- fast paths -------------------------------------------------------------------------------------------------------


def test_every_module_of_torch_that_asks_for_function_modes_is_known():
    folder = Path(nn.__file__).parent
    found = set()
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found |= {node.name for test in ast.walk(node) if isinstance(test, ast.If) and asks(test)}
    assert found == {kind.__name__ for kind in FAST_PATH_MODULES}


def asks(node: ast.If) -> bool:
    """Whether a condition looks for overrides, and does not just hand the call to them."""
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node.test)}
    handed_on = any("handle_torch_function" in ast.dump(statement) for statement in node.body)
    return not handed_on and any(name.startswith("has_torch_function") for name in names)


def test_a_module_on_its_fast_path_is_one_call():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 8)

    def program():
        with torch.no_grad():
            return model(x) + 1

    _, recording = recorded(program)
    assert calls_of(recording) == ["torch.nn.TransformerEncoder.forward", "torch.Tensor.add"]
    trace = recording.trace
    native = [op for op in trace.ops if op.name == "aten::_transformer_encoder_layer_fwd"]
    assert len(native) == 2
    assert [trace.module_path(op.module_call) for op in native] == ["layers.0", "layers.1"]
    assert {op.call for op in native} == {0}
    assert trace.site(0).expression == "model(x)"
    inputs, outputs = trace.log.calls[0].inputs, trace.log.calls[0].outputs
    assert [trace.log.layouts[trace.log.refs[ref].layout].sizes for ref in (*inputs, *outputs)] == [(2, 5, 8)] * 2


def test_a_module_whose_forward_is_called_by_its_name_is_one_call():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)

    def program():
        with torch.no_grad():
            return layer.forward(x) + 1

    _, recording = recorded(program)
    names = calls_of(recording)
    assert names[-2:] == ["torch.nn.TransformerEncoderLayer.forward", "torch.Tensor.add"]
    (native,) = [op for op in recording.trace.ops if op.name == "aten::_transformer_encoder_layer_fwd"]
    assert native.call == len(names) - 2
    assert recording.trace.site(native.call).expression == "layer.forward(x)"
    assert sys.getprofile() is None


def test_a_module_that_leaves_its_fast_path_is_recorded_within():
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    _, recording = recorded(lambda: model(x, x, x))
    assert "torch.nn.functional.multi_head_attention_forward" in calls_of(recording)


# -- subclasses and modes ---------------------------------------------------------------------------------------------


def test_a_subclass_is_asked_for_its_sizes_as_often_as_by_the_profiler_alone():
    def program():
        return dispatch(Sized)

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):
        expected = bits(seeded(program))
    during, _ = recorded(program)
    assert bits(during) == expected


def test_a_mode_that_is_on_before_recording_is_left_inside_it():
    mode = Functions()
    recorder = stridewise.record()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mode)
        with recorder as recording:
            torch.ones(2) + 1
            stack.close()
            assert torch.overrides._get_current_function_mode_stack() == [recorder.calls]
            torch.ones(2) * 2
    assert "add" in mode.seen
    assert "mul" not in mode.seen
    assert torch.overrides._get_current_function_mode_stack() == []
    assert calls_of(recording) == ["torch.ones", "torch.Tensor.add", "torch.ones", "torch.Tensor.mul"]


def test_a_mode_that_is_entered_during_recording_outlives_it():
    mode = Functions()
    with stridewise.record():
        mode.__enter__()
        torch.ones(2) + 1
    assert torch.overrides._get_current_function_mode_stack() == [mode]
    torch.ones(2) * 2
    mode.__exit__(None, None, None)
    assert torch.overrides._get_current_function_mode_stack() == []
    assert mode.seen.count("add") == mode.seen.count("mul") == 1


def test_recording_that_starts_inside_a_mode_and_ends_after_it():
    mode, recorder = Functions(), stridewise.record()
    with mode:
        recorder.start()
        torch.ones(2) + 1
    torch.ones(2) * 2
    recorder.stop()
    assert "mul" not in mode.seen
    assert torch.overrides._get_current_function_mode_stack() == []
    assert calls_of(recorder.recording)[-1] == "torch.Tensor.mul"


@pytest.mark.parametrize("first", ["device", "record"])
def test_default_devices_overlap_with_recordings(first):
    recorder, device = stridewise.record(), torch.device("meta")
    entering, leaving = ([device, recorder], [device, recorder]) if first == "device" else ([recorder, device],) * 2
    for context in entering:
        context.__enter__()
    assert torch.empty(2).device.type == "meta"
    leaving[0].__exit__(None, None, None)
    assert torch.empty(2).device.type == ("cpu" if first == "device" else "meta")
    leaving[1].__exit__(None, None, None)
    assert torch.empty(2).device.type == "cpu"
    assert torch.overrides._get_current_function_mode_stack() == []
    assert calls_of(recorder.recording).count("torch.empty") == (2 if first == "device" else 1)


def test_a_default_device_that_is_set_before_and_unset_during_recording():
    torch.set_default_device("meta")
    try:
        with stridewise.record() as recording:
            assert torch.empty(2).device.type == "meta"
            torch.set_default_device(None)
            assert torch.empty(2).device.type == "cpu"
            torch.set_default_device("meta")
        assert torch.empty(2).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert torch.empty(2).device.type == "cpu"
    assert torch.overrides._get_current_function_mode_stack() == []
    assert calls_of(recording).count("torch.empty") == 2


def test_a_call_that_a_mode_hands_on_has_the_site_of_what_the_program_called():
    def program():
        with Functions():
            return torch.randn(2, 2).t().contiguous()

    _, recording = recorded(program)
    sites = [recording.trace.site(call) for call in range(3)]
    assert [site.file for site in sites] == [recording.trace.site(0).file] * 3
    assert sites[2].expression == "torch.randn(2, 2).t().contiguous()"


# -- what stderr shows ------------------------------------------------------------------------------------------------


def warning_of_kernel():
    return torch.ones(2, 3, 4).T


def warning_of_function():
    return torch.nn.functional.softmax(torch.ones(3))


def warning_of_property():
    return torch.ones(2, requires_grad=True).add(1).grad


@pytest.mark.parametrize("function", [warning_of_kernel, warning_of_function, warning_of_property])
def test_a_warning_of_torch_comes_from_the_same_line(function):
    def program():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function()
        return [(warning.category, str(warning.message), warning.filename, warning.lineno) for warning in seen]

    torch.set_warn_always(True)
    try:
        before = program()
        with stridewise.record():
            during = program()
    finally:
        torch.set_warn_always(False)
    assert len(before) == 1
    assert before[0][2:] == (__file__, function.__code__.co_firstlineno + 1)
    assert during == before


def test_warnings_are_told_apart_as_before():
    """Python's `default` shows one warning a line: with all of them from one line of ours, most would be lost."""

    def program():
        shown = []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            torch.nn.functional.softmax(torch.ones(3))
            for _ in range(2):
                torch.nn.functional.softmax(torch.ones(3))
            shown += [warning.lineno for warning in seen]
        globals().pop("__warningregistry__", None)
        return shown

    assert len(program()) == 2
    with stridewise.record():
        during = program()
    assert during == program()


# -- exceptions -------------------------------------------------------------------------------------------------------


class Odd(Exception):
    pass


class Raises(nn.Module):
    def forward(self, x):
        try:
            x.view(7, 7)
        except RuntimeError as error:
            failure = Odd("what", x.shape)
            failure.add_note("a note")
            raise failure from error


def shown(error: BaseException | None) -> object:
    if error is None:
        return None
    notes = getattr(error, "__notes__", [])
    rest = shown(error.__cause__), shown(error.__context__), error.__suppress_context__
    return type(error), str(error), repr(error.args), notes, rest


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.ones(2) + torch.ones(3),
        lambda: torch.ones(2).no_such_method(),
        lambda: torch.nn.functional.linear(torch.ones(2, 3), "x"),
        lambda: torch.ones(2).size(5),
        lambda: nn.Sequential(nn.Identity(), Raises())(torch.ones(2, 3)),
        lambda: nn.Linear(2, 2)(torch.ones(2, 3), nonsense=1),
        lambda: torch.ones(2, requires_grad=True).backward(),
        lambda: torch.ones(2)[5],
    ],
)
def test_exceptions_are_the_same(fails):
    def program():
        try:
            fails()
        except Exception as error:
            return error

    before = program()
    with stridewise.record():
        during = program()
    assert shown(during) == shown(before)
    assert not [frame for frame in traceback.extract_tb(during.__traceback__) if frame.name == "_call"]


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.ones(2) + torch.ones(3),
        lambda: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, 2)),
        lambda: nn.Sequential(nn.Identity(), Raises())(torch.ones(2, 3)),
    ],
    ids=["kernel", "function", "module"],
)
def test_an_exception_that_leaves_the_recording_has_the_traceback_of_a_run_without(fails):
    def program(context):
        with context:
            fails()

    shown = []
    for context in (contextlib.nullcontext(), stridewise.record()):
        with pytest.raises((RuntimeError, Odd)) as caught:
            program(context)
        shown.append("".join(traceback.format_exception(caught.value)))
    assert shown[0] == shown[1]


def test_a_traceback_keeps_no_argument_alive():
    import weakref

    def program():
        big = torch.ones(3)
        watched = weakref.ref(big)
        try:
            torch.add(*[big, torch.ones(2)])
        except RuntimeError as error:
            del big
            return watched, error

    watched, error = program()
    assert watched() is None
    with stridewise.record():
        watched, error = program()
        assert watched() is None
    assert error.__traceback__ is not None


def test_deep_recursion_fails_about_as_deep():
    def depth(limit: int) -> int:
        reached = 0

        def down(x: torch.Tensor, level: int) -> None:
            nonlocal reached
            reached = level
            down(x + 1, level + 1)

        with contextlib.suppress(RecursionError):
            down(torch.ones(1), 0)
        return reached

    before = depth(sys.getrecursionlimit())
    with stridewise.record() as recording:
        during = depth(sys.getrecursionlimit())
        assert (torch.ones(2) + 1).tolist() == [2, 2]
    assert during > before - 20
    assert calls_of(recording)


def test_the_shape_of_a_program_survives_work_under_every_mode():
    """All of the traps at once."""
    x = torch.randn(4, 5)
    model = net()

    def program():
        with Functions(), torch.autocast("cpu"), torch.no_grad():
            return work(x), model(torch.ones(2, 6))

    assert bits(recorded(program)[0]) == bits(seeded(program))
