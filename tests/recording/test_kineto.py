"""The reader: files that are none, traces of devices, and real traces recorded elsewhere."""

import contextlib
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import stridewise
from stridewise.errors import InputError, StridewiseError
from stridewise.recording import kineto
from stridewise.recording.handle import Recording

Write = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: Any) -> Path:
        path = tmp_path / "trace.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.fixture(scope="module")
def recorded() -> Recording:
    x = torch.randn(8, 16)
    with stridewise.record() as recording:
        (x.t() + 1).contiguous()
    return recording


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no trace"),
        (b"hello", "no trace"),
        (b"{", "no trace"),
        (b"[]]", "no trace"),
        (b"3", "no trace"),
        (b"\xff\xfe\x00", "no trace"),
        (b'{"traceEvents": 3}', "no trace"),
        (b'{"events": []}', "no trace"),
        (b'{"traceEvents": [{"ts": "soon", "ph": "X"}]}', "no trace"),
        (b'{"traceEvents": [[1, 2]]}', "no trace"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-14], "gzip ends too early"),
        (b"\x1f\x8b rubbish", "damaged"),
        (b'{"traceEvents": [], "stridewise": {"version": 99}}', "version 99"),
        (b'{"traceEvents": [], "stridewise": [1]}', "call log"),
        (b'{"traceEvents": [], "stridewise": {"version": 1, "calls": [[0, 7, -1, 0, -1, [], []]]}}', "not there"),
    ],
    ids=repr,
)
def test_a_file_that_is_no_recording_is_said_so_in_a_line_or_two(write: Write, content: bytes, message: str) -> None:
    path = write(content)
    with pytest.raises(InputError, match=message) as caught:
        stridewise.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


LOG = {"version": 1, "modules": [["", "M"]]}


@pytest.mark.parametrize(
    "trace",
    [
        {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "ts": 1e306}]},
        {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "ts": 1, "dur": 1e306}]},
        {"traceEvents": [], "stridewise": LOG | {"limit": -5}},
        {"traceEvents": [], "stridewise": LOG | {"warmup": -1}},
        {"traceEvents": [], "stridewise": LOG | {"layouts": [[[2, 3], [3], 0, "float32", "cpu"]]}},
        {"traceEvents": [], "stridewise": LOG | {"layouts": [[[-2], [1], 0, "float32", "cpu"]]}},
        {"traceEvents": [], "stridewise": LOG | {"module_calls": [[0, 0, 1, [], []], [1, 0, 0, [], []]]}},
    ],
    ids=range(7),
)
def test_what_cannot_be_is_refused(write: Write, trace: Any) -> None:
    with pytest.raises(InputError):
        stridewise.analyze(write(trace))


@pytest.mark.parametrize(
    "args",
    [
        {"Input Dims": [[10**400, 3], [10**400, 3]], "Input Strides": [[3, 1], [1, 3]]},
        {"Input Dims": [[2**40] * 64, [2**40] * 64], "Input Strides": [[1] * 64, [2] * 64]},
        {"Input Dims": [[-4, 8], [-4, 8]], "Input Strides": [[8, 1], [1, 4]]},
        {"Input Dims": [[4, 8], [4, 8]], "Input Strides": [[8, -1], [1, 4]]},
        {"Input Dims": [[4, 8], [4, 8]], "Input Strides": [[8], [1, 4]]},
        {"Input Dims": "none", "Input Strides": 3},
    ],
    ids=range(6),
)
def test_an_operator_that_cannot_be_is_no_copy(write: Write, args: Any) -> None:
    assert stridewise.analyze(write({"traceEvents": [op("aten::copy_", 10, 5, **args)]})).copies == ()


def test_arguments_that_cannot_be_decoded_are_none(write: Write) -> None:
    nested = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    event = b'{"ph": "X", "cat": "cpu_op", "name": "%s", "ts": 1, "dur": 2, "args": %s}'
    for name, args in (
        (b"aten::copy_", nested),
        (b"aten::copy_", b'{"Input type": ["\xff"]}'),
        (b"stridewise:" + b"9" * 5000, b"{}"),
    ):
        path = write(b'{"traceEvents": [' + event % (name, args) + b"]}")
        with contextlib.suppress(InputError):
            assert stridewise.analyze(path).copies == ()


def test_a_recording_is_saved_through_a_link_and_into_a_device(recorded: Recording, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    recorded.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert stridewise.load(tmp_path / "real.json").trace.log is not None
    recorded.save("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        stridewise.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        stridewise.load(tmp_path)


@given(st.binary(max_size=60))
def test_no_bytes_crash_the_reader(content: bytes) -> None:
    with contextlib.suppress(StridewiseError):
        kineto.read(content, "it")


@given(st.data())
def test_a_damaged_recording_is_read_or_refused(recorded: Recording, data: st.DataObject) -> None:
    content = bytearray(recorded._content or b"")
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(32, 126))
    with contextlib.suppress(StridewiseError):
        stridewise.analyze(Recording(bytes(content)))


def test_an_empty_trace_has_a_report(write: Write) -> None:
    report = stridewise.analyze(write({"traceEvents": []}))
    assert report.ok
    assert report.totals.copies is None
    assert not report.totals.steps_found
    assert "one step" in report.notes[0]
    assert "Nothing was recorded" in report.notes[1]
    assert "fine" not in str(report)


@pytest.mark.parametrize("name", ["recording.json", "recording.json.gz"])
def test_saving_and_loading(recorded: Recording, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    recorded.save(path)
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    again = stridewise.analyze(path)
    assert again.copies == stridewise.analyze(recorded).copies
    assert len(again.copies) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_saved_recording_keeps_what_the_machine_is_to_itself(recorded: Recording, tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    recorded.save(path)
    assert set(json.loads(path.read_text())) <= {
        *("schemaVersion", "deviceProperties", "record_shapes", "with_stack", "displayTimeUnit", "baseTimeNanoseconds"),
        *("stridewise", "traceEvents"),
    }
    assert "host_name" not in path.read_text()


def test_saving_where_nothing_can_be_written(recorded: Recording, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        recorded.save(tmp_path / "none" / "recording.json")


def test_a_recording_that_is_being_made_is_not_for_reading(tmp_path: Path) -> None:
    with stridewise.record() as recording:
        with pytest.raises(StridewiseError, match="not finished"):
            recording.trace  # noqa: B018
        with pytest.raises(StridewiseError, match="not finished"):
            recording.save(tmp_path / "recording.json")


def op(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def copy_op(ts: float, external_id: int) -> dict[str, Any]:
    return op(
        "aten::copy_",
        ts,
        5,
        **{
            "External id": external_id,
            "Input Dims": [[4, 8], [4, 8], []],
            "Input Strides": [[8, 1], [1, 4], []],
            "Input type": ["float", "float", "Scalar"],
        },
    )


def launch(ts: float, correlation: int) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": ts, "dur": 1} | {
        "args": args
    }


def kernel(ts: float, dur: float, name: str = "direct_copy_kernel_cuda", cat: str = "kernel", **args: Any) -> Any:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur} | {
        "args": {"device": 0, "stream": 7, **args}
    }


@pytest.mark.parametrize("link", ["correlation", "External id"])
def test_on_a_device_a_copy_costs_its_kernels_and_not_its_launch(write: Write, link: str) -> None:
    events = [copy_op(10, 3), kernel(100, 40, **{link: 3}), kernel(150, 60, name="gemm")]
    if link == "correlation":
        events.append(launch(12, 3))
    report = stridewise.analyze(write({"traceEvents": events}))
    (copy,) = report.copies
    assert copy.duration_ns == 40_000
    assert report.totals.share_of == "kernel-busy time"
    assert report.totals.share == pytest.approx(0.4)
    assert copy.gb_per_s == pytest.approx(2 * 32 * 4 / 40_000)
    assert sorted((row.op or "none", row.cause) for row in report.kernels) == [("aten::copy_", "copy"), ("none", None)]
    assert report.totals.layout_kernels is not None
    assert (report.totals.layout_kernels.count, report.totals.layout_kernels.duration_ns) == (1, 40_000)
    assert report.totals.layout_kernels.share == pytest.approx(0.4)


def test_a_kernel_belongs_to_the_step_that_launched_it(write: Write) -> None:
    marks = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 10}
        for n in range(3)
    ]
    copies = [copy_op(10 * n + 1, n + 1) for n in range(3)]
    gemms = [op("aten::mm", 10 * n + 7, 1, **{"External id": n + 10}) for n in range(3)]
    kernels = [kernel(5 + 100 * n, 50, **{"External id": n + 1}) for n in range(3)]
    kernels += [kernel(55 + 100 * n, 50, name="gemm", **{"External id": n + 10}) for n in range(3)]
    report = stridewise.analyze(write({"traceEvents": [*marks, *copies, *gemms, *kernels]}))
    assert report.totals.steps == 3
    assert report.totals.share == pytest.approx(0.5)
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.count == 1


def test_kernels_that_overlap_count_each(write: Write) -> None:
    events = [
        copy_op(10, 3),
        launch(12, 3),
        kernel(100, 50, correlation=3),
        kernel(100, 50, name="gemm"),
        kernel(200, 50, name="gemm"),
    ]
    assert stridewise.analyze(write({"traceEvents": events})).totals.share == pytest.approx(1 / 3)


def test_a_copy_between_devices_changes_no_layout(write: Write) -> None:
    events = [
        copy_op(10, 3),
        launch(12, 3),
        kernel(100, 40, "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", correlation=3),
    ]
    assert stridewise.analyze(write({"traceEvents": events})).copies == ()


def test_a_trace_without_strides_has_no_figures_and_says_why(write: Write) -> None:
    report = stridewise.analyze(write({"traceEvents": [op("aten::copy_", 10, 5)]}))
    assert report.totals.copies is None
    assert report.totals.share is None
    assert any("without strides" in note for note in report.notes)


def test_profiler_steps_are_steps(write: Write) -> None:
    marks = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{number}",
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "dur": 100,
        }
        for number, ts in ((3, 0), (4, 100))
    ]
    report = stridewise.analyze(write({"traceEvents": [*marks, copy_op(10, 1), copy_op(20, 2), copy_op(150, 3)]}))
    assert report.totals.steps == 2
    assert report.totals.steps_found
    assert report.totals.copies == 1.5
    assert [copy.step for copy in report.copies] == [0, 0, 1]


def test_a_list_of_events_is_a_trace_too(write: Write) -> None:
    assert len(stridewise.analyze(write([copy_op(10, 1)])).copies) == 1


# -- other ages and vendors --------------------------------------------------------------------------------------------


def test_traces_of_torch_1_8(write: Write) -> None:
    """As libkineto's output_json.cpp wrote them: other categories, threads as text, ids in lower case, no strides."""

    def old(category: str, name: str, ts: int, dur: int, tid: str, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 5, "tid": tid, "ts": ts, "dur": dur, "args": args}

    shape = {"Device": 5, "Trace name": "PyTorch Profiler", "Trace iteration": 0}
    gpu = {"device": 0, "context": 1, "stream": 7}
    trace = write(
        {
            "schemaVersion": 1,
            "traceEvents": [
                old("Operator", "ProfilerStep#1", 0, 100, "9", **shape, **{"External id": 1}),
                old(
                    "Operator", "aten::conv2d", 10, 50, "9", **shape, **{"External id": 2, "Input dims": [[1, 3, 8, 8]]}
                ),
                old("Operator", "aten::cudnn_convolution", 20, 20, "9", **shape, **{"External id": 3}),
                old("Runtime", "cudaLaunchKernel", 25, 5, "7012", cbid=211, correlation=8, **{"external id": 3}),
                {"ph": "s", "id": 8, "pid": 5, "tid": 7012, "ts": 25, "cat": "async", "name": "launch"},
                old(
                    "Kernel",
                    "cudnn::ops::nchwToNhwcKernel",
                    60,
                    4,
                    "stream 7",
                    correlation=8,
                    **gpu,
                    **{"external id": 3},
                ),
                old(
                    "Memcpy", "Memcpy DtoD", 70, 4, "stream 7", **gpu, **{"memory bandwidth (GB/s)": "N/A", "bytes": 64}
                ),
                {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 200},
            ],
        }
    )
    report = stridewise.analyze(trace)
    assert (report.totals.steps, report.totals.steps_found, report.totals.step_ns) == (1, True, 100_000)
    (kernel_row,) = report.kernels
    assert (kernel_row.op, kernel_row.cause) == ("aten::cudnn_convolution", "transpose")
    (copy,) = report.copies
    assert copy.op == "aten::conv2d"
    assert Recording.load(trace).trace.ops.args[0].old_dims == [[1, 3, 8, 8]]


def test_traces_of_the_legacy_profiler(write: Write) -> None:
    """`torch.autograd.profiler.profile(use_kineto=False).export_chrome_trace`: a list without categories."""
    events = [
        {"name": name, "ph": "X", "ts": ts, "dur": dur, "tid": 1, "pid": "CPU functions", "args": {}}
        for name, ts, dur in (("aten::contiguous", 1, 9), ("aten::clone", 2, 7), ("aten::copy_", 3, 5))
    ]
    ops = Recording.load(write(events)).trace.ops
    assert [ops.text(op) for op in ops.around(2)] == ["aten::copy_", "aten::clone", "aten::contiguous"]


def test_a_rank_is_read_and_nothing_else_of_the_job(write: Write) -> None:
    info = {"backend": "nccl", "rank": 5, "world_size": 8, "pg_config": [{"secret": 1}]}
    assert Recording.load(write({"traceEvents": [], "distributedInfo": info})).trace.rank == 5
    for other in ({"rank": "5"}, [], 3, {"world_size": 8}):
        assert Recording.load(write({"traceEvents": [], "distributedInfo": other})).trace.rank is None


def test_two_processes_are_two_threads(write: Write) -> None:
    events = [op("aten::add", 0, 10), {**op("aten::mul", 2, 3), "pid": 2}]
    ops = Recording.load(write({"traceEvents": events})).trace.ops
    assert list(ops.parent) == [-1, -1]
