"""The regions of autocast in the call log: which call was made in which, and that the program sees nothing of it."""

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import stridewise
from stridewise.recording.model import CallLog, CallRow, decode_log

from .both import recorded, seeded

KIND = torch.amp.autocast_mode.autocast


def log_of(program: Any) -> CallLog:
    log = recorded(program)[1].trace.log
    assert log is not None
    log.check()
    return log


def regions_of(log: CallLog, function: str) -> list[tuple[str, bool] | None]:
    """The dtype and switch of the region around each call of a function; None where it was in none."""
    assert log.autocast is not None
    rows = [log.autocast[row.autocast] if row.autocast >= 0 else None for row in calls(log, function)]
    return [row and (row.dtype, row.enabled) for row in rows]


def calls(log: CallLog, function: str) -> list[CallRow]:
    return [row for row in log.calls if log.functions[row.function] == function]


@pytest.fixture(autouse=True)
def _autocast_is_off_again():
    yield
    assert not torch.is_autocast_enabled("cpu")


def test_each_call_knows_the_innermost_region():
    def program():
        x = torch.ones(2, 2)
        x.sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x.sin()
            with torch.autocast("cpu", enabled=False):
                x.sin()
                with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
                    x.sin()
            x.sin()
        x.sin()

    log = log_of(program)
    bf16, off, f16 = ("bfloat16", True), ("bfloat16", False), ("float16", True)
    assert regions_of(log, "torch.Tensor.sin") == [None, bf16, off, f16, bf16, None]
    assert log.autocast is not None
    assert [(row.parent, row.cache, row.before, row.device) for row in log.autocast] == [
        (-1, True, False, "cpu"),
        (0, True, False, "cpu"),
        (1, False, False, "cpu"),
    ]


def test_a_region_knows_where_it_is_entered():
    def program():
        with torch.autocast("cpu"):
            torch.ones(2)

    log = log_of(program)
    assert log.autocast is not None
    site = log.sites[log.autocast[0].site]
    assert Path(site.file).name == Path(__file__).name
    assert site.expression is not None
    assert 'torch.autocast("cpu")' in site.expression


def test_regions_that_are_open_when_the_recording_begins_are_known_until_they_end():
    x = torch.ones(2)
    region = torch.autocast("cpu", dtype=torch.float16)
    region.__enter__()
    try:
        with stridewise.record() as recording:
            x.sin()
            with torch.autocast("cpu", enabled=False):
                x.sin()
            region.__exit__(None, None, None)
            x.sin()
    finally:
        assert not torch.is_autocast_enabled("cpu")
    log = recording.trace.log
    assert log is not None
    assert log.autocast is not None
    assert [row.before for row in log.autocast] == [True, False]
    assert regions_of(log, "torch.Tensor.sin") == [("float16", True), ("float16", False), None]


@pytest.mark.needs_torch("2.7", "the profiler does not record Python's threads")
def test_threads_have_regions_of_their_own():
    x = torch.ones(2)
    entered, left = threading.Event(), threading.Event()

    def other():
        with torch.autocast("cpu", dtype=torch.float16):
            x.sin()
            entered.set()
            left.wait(10)
            x.sin()

    def program():
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(10)
        x.cos()
        with torch.autocast("cpu"):
            x.cos()
        left.set()
        thread.join()

    log = log_of(program)
    assert regions_of(log, "torch.Tensor.sin") == [("float16", True)] * 2
    assert regions_of(log, "torch.Tensor.cos") == [None, ("bfloat16", True)]


def decorated():
    @torch.autocast("cpu")
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    inner(torch.ones(2))


def old_name():
    with pytest.warns(FutureWarning), torch.cpu.amp.autocast():
        torch.ones(2).sin()


def same_object_twice():
    region = torch.autocast("cpu")
    with region:
        torch.ones(2)
    with region:
        torch.ones(2).sin()


def raising():
    with pytest.raises(ValueError, match="x"), torch.autocast("cpu", dtype=torch.float16):
        raise ValueError("x")
    with torch.autocast("cpu"):
        torch.ones(2).sin()


@pytest.mark.parametrize("program", [decorated, old_name, same_object_twice, raising])
def test_every_way_in_is_seen(program):
    assert regions_of(log_of(program), "torch.Tensor.sin") == [("bfloat16", True)]


def test_regions_that_end_out_of_order_do_not_outlive_themselves():
    def program():
        first, second = torch.autocast("cpu"), torch.autocast("cpu", dtype=torch.float16)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        torch.set_autocast_enabled("cpu", False)
        torch.ones(2).sin()

    assert regions_of(log_of(program), "torch.Tensor.sin") == [None]


def test_a_compiled_region_is_in_its_region():
    def program():
        function = torch.compile(lambda x: x.sin(), backend="eager")
        with torch.autocast("cpu"):
            function(torch.ones(2))

    log = log_of(program)
    assert regions_of(log, "compiled region") == [("bfloat16", True)]


def test_a_script_that_holds_a_region_still_compiles():
    def scripted(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(x, x)

    x = torch.randn(3, 3)
    assert torch.equal(recorded(lambda: torch.jit.script(scripted)(x))[0], torch.jit.script(scripted)(x))


def test_results_are_those_without_a_recording_and_the_class_is_itself_again():
    before = vars(KIND)["__enter__"], vars(KIND)["__exit__"]
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def program():
        x = torch.randn(3, 4)
        with torch.autocast("cpu") as entered:
            y = model(x)
            with torch.autocast("cpu", enabled=False):
                z = model(x)
        return (
            y,
            z,
            type(entered),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        )

    plain, seen = seeded(program), recorded(program)[0]
    assert all(map(torch.equal, plain[:2], seen[:2]))
    assert plain[2:] == seen[2:]
    assert (vars(KIND)["__enter__"], vars(KIND)["__exit__"]) == before


def test_no_more_regions_are_logged_than_calls_can_be():
    def program():
        for _ in range(40):
            with torch.autocast("cpu"):
                pass
        torch.ones(2).sin()

    log = recorded(program, max_ops=30)[1].trace.log
    assert log is not None
    assert log.autocast is not None
    assert len(log.autocast) == 10


def test_a_failure_of_our_own_does_not_reach_the_program(monkeypatch):
    def fail(device: str) -> torch.dtype:
        raise RuntimeError("no dtype")

    def program():
        monkeypatch.setattr("stridewise.recorder.autocast.dtype_of", fail)
        with torch.autocast("cpu"):
            return torch.ones(2).sin()

    result, recording = recorded(program)
    assert result.shape == (2,)
    assert any("no dtype" in note for note in recording.trace.notes)


# -- the log in a file -----------------------------------------------------------------------------------------------


def autocast_log() -> dict[str, Any]:
    def program():
        with torch.autocast("cpu"):
            torch.ones(2).sin()

    fields: dict[str, Any] = json.loads(msgspec.json.encode(log_of(program)))
    return fields


def decoded(fields: dict[str, Any]) -> CallLog:
    return decode_log(msgspec.Raw(json.dumps(fields).encode()))


def test_a_log_of_an_earlier_version_says_nothing_of_regions():
    fields = autocast_log()
    del fields["autocast"]
    fields["calls"] = [call[:7] for call in fields["calls"]]
    log = decoded(fields)
    log.check()
    assert log.autocast is None
    assert all(row.autocast == -1 for row in log.calls)


@pytest.mark.parametrize(
    "broken",
    [
        lambda fields: fields["calls"][0].__setitem__(7, 1),
        lambda fields: fields["calls"][0].__setitem__(7, -2),
        lambda fields: fields["autocast"][0].__setitem__(0, 0),
        lambda fields: fields["autocast"][0].__setitem__(0, -2),
        lambda fields: fields["autocast"][0].__setitem__(1, 99),
        lambda fields: fields["autocast"][0].__setitem__(2, -2),
        lambda fields: fields.pop("autocast"),
    ],
    ids=["region", "no region", "own parent", "parent", "site", "via", "table"],
)
def test_a_log_whose_regions_are_not_there_is_refused(broken):
    fields = autocast_log()
    fields["calls"] = fields["calls"][-1:]
    fields["calls"][0][7] = 0
    decoded(fields).check()
    broken(fields)
    with pytest.raises(IndexError, match="rows that are not there"):
        decoded(fields).check()
