"""Databases of Nsight Systems: what is read from them, and that no file can hang the reader or run in it."""

import contextlib
import functools
import gzip
import json
import os
import random
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise
from stridewise.errors import InputError
from stridewise.recording import database as databases
from stridewise.recording import nsys, nvtx
from stridewise.recording.formats import load_trace

from .nsys_database import KERNELS, MARK, RUNTIME, SCHEMA, SESSION_START_NS, START_END, Export

CONV = (
    "aten::conv2d, seq = 12, op_id = 34, sizes = [[1, 3, 8, 8], [4, 3, 3, 3], [], []], input_op_ids = [(0,-1), (33,0)]"
)
TRANSPOSE = (
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
)


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    export = Export(tmp_path / "report.sqlite")
    yield export
    export.connection.close()


def convolutions(export: Export, steps: int = 2) -> Path:
    """A small network's inference: a convolution a step, for which cuDNN transposes its input."""
    for step in range(steps):
        at = step * 10_000
        export.range(at, at + 9_000, f"step {step}")
        export.range(at + 100, at + 900, CONV)
        export.range(at + 200, at + 800, "aten::cudnn_convolution, seq = 12, op_id = 35")
        export.launch(at + 300, {"name": TRANSPOSE, "start": at + 1_000, "end": at + 1_400})
        export.launch(at + 400, {"name": "sm80_xmma_fprop<float>", "start": at + 1_400, "end": at + 2_000})
    export.add("TARGET_INFO_GPU", name="NVIDIA H100 80GB HBM3")
    return export.close()


# -- what is read ------------------------------------------------------------------------------------------------------


def test_kernels_belong_to_the_operator_that_launched_them(export: Export) -> None:
    trace = load_trace(convolutions(export))
    assert [event.name for event in trace.device_events[:2]] == [TRANSPOSE, "sm80_xmma_fprop<float>"]
    first = trace.device_events[0]
    assert (first.category, first.start_ns, first.duration_ns, first.device, first.stream) == (
        "kernel",
        1_000,
        400,
        0,
        7,
    )
    assert first.launched_ns == 300
    assert [trace.ops.text(op) for op in trace.ops.around(first.op)] == ["aten::cudnn_convolution", "aten::conv2d"]


def test_ranges_of_emit_nvtx_are_operators_with_their_sizes(export: Export) -> None:
    trace = load_trace(convolutions(export))
    (op, _) = trace.ops.named("aten::conv2d")
    args = trace.ops.args[op]
    assert (args.sequence, args.dims) == (12, [[1, 3, 8, 8], [4, 3, 3, 3], [], []])
    assert not args.strides
    assert "step 0" in trace.ranges.around(trace.ops.thread[op], 500)


def test_steps_are_the_ranges_that_are_named_so(export: Export) -> None:
    trace = load_trace(convolutions(export, steps=3))
    assert trace.steps_found
    assert [(step.start_ns, step.end_ns) for step in trace.steps] == [(0, 9_000), (10_000, 19_000), (20_000, 29_000)]
    assert "Steps are the 3 NVTX ranges named `step`." in trace.notes


def test_times_are_of_the_session(export: Export) -> None:
    trace = load_trace(convolutions(export))
    assert trace.base_ns == SESSION_START_NS
    assert trace.environment == {"device": "NVIDIA H100 80GB HBM3", "nsys": "2025.3.1.90"}


def test_a_report_says_what_its_kernels_tell_and_what_they_do_not(export: Export) -> None:
    report = stridewise.analyze(convolutions(export))
    assert report.totals.share_of == "kernel-busy time"
    assert report.totals.steps == 2
    (note,) = [note for note in report.notes if "no strides" in note]
    assert "record_shapes=True" in note
    assert "Nothing was recorded" not in str(report.notes)


def test_correlation_ids_repeat_between_processes(export: Export) -> None:
    for process, op in ((100, "aten::add"), (200, "aten::mul")):
        export.range(0, 100, f"{op}, seq = 1, op_id = 5", process=process)
        kernel = {"name": op, "start": 200, "end": 300}
        export.launch(50, kernel, process=process, correlation=7)
    trace = load_trace(export.close())
    assert {event.name: trace.ops.text(event.op) for event in trace.device_events} == {
        "aten::add": "aten::add",
        "aten::mul": "aten::mul",
    }
    assert any(note.startswith("2 processes used GPUs") for note in trace.notes)


def test_each_process_counts_devices_its_own_way(export: Export) -> None:
    for process, gpu in ((100, 5), (200, 2)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
        export.launch(50, {"name": str(process), "start": 200, "end": 300}, process=process)
    trace = load_trace(export.close())
    assert {event.name: event.device for event in trace.device_events} == {"100": 5, "200": 2}


def test_kernels_of_a_graph_share_its_launch(export: Export) -> None:
    export.range(0, 100, "replay")
    kernels = [{"name": f"k{at}", "start": at, "end": at + 9, "graphNodeId": at} for at in (200, 300)]
    export.launch(50, *kernels)
    trace = load_trace(export.close())
    assert [(event.name, event.launched_ns) for event in trace.device_events] == [("k200", 50), ("k300", 50)]


def test_graphs_without_their_kernels_are_said_to_be_so(export: Export) -> None:
    export.launch(50, {"start": 100, "end": 900, "graphId": 3}, table="CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    trace = load_trace(export.close())
    assert [(event.name, event.category, event.duration_ns) for event in trace.device_events] == [
        ("CUDA graph 3", "kernel", 800)
    ]
    assert any("--cuda-graph-trace=node" in note for note in trace.notes)


def test_copies_and_sets_of_memory(export: Export) -> None:
    export.launch(0, {"name": "k", "start": 1, "end": 2})
    for kind in (1, 2, 8, 10, 77):
        export.launch(0, {"start": 3, "end": 9, "bytes": 64, "copyKind": kind}, table="CUPTI_ACTIVITY_KIND_MEMCPY")
    export.launch(0, {"start": 3, "end": 9, "bytes": 32}, table="CUPTI_ACTIVITY_KIND_MEMSET")
    trace = load_trace(export.close())
    assert {(event.name, event.category, event.bytes) for event in trace.device_events[1:]} == {
        ("Memcpy HtoD", "gpu_memcpy", 64),
        ("Memcpy DtoH", "gpu_memcpy", 64),
        ("Memcpy DtoD", "gpu_memcpy", 64),
        ("Memcpy PtoP", "gpu_memcpy", 64),
        ("Memcpy", "gpu_memcpy", 64),
        ("Memset (Device)", "gpu_memset", 32),
    }


def test_registered_strings_marks_and_overlapping_ranges(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    export.range(0, 20, None, textId=export.string("registered"))  # type: ignore[arg-type]
    export.range(4, 30, "across", eventType=START_END)
    export.range(4, None, "a mark", eventType=MARK)
    trace = load_trace(export.close())
    assert set(trace.ranges.around(trace.device_events[0].thread, 5)) == {"registered", "across"}


def test_a_range_that_was_open_at_the_end_lasted_until_then(export: Export) -> None:
    export.range(0, None, "aten::mm, op_id = 1")
    export.range(1, None, "the rest")
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    trace = load_trace(export.close())
    assert trace.ops.end_ns[0] == 40
    assert list(trace.ranges.around(trace.device_events[0].thread, 39)) == ["the rest"]
    assert trace.ops.text(trace.device_events[0].op) == "aten::mm"


def test_events_without_times_are_left_out_and_counted(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 0, "end": 0}, {"name": "k", "start": 9, "end": 12})
    trace = load_trace(export.close())
    assert len(trace.device_events) == 1
    assert "Device events without times, which are left out: 1." in trace.notes


def test_exports_of_older_versions_have_fewer_columns(tmp_path: Path) -> None:
    wanted = {
        "start",
        "end",
        "deviceId",
        "streamId",
        "correlationId",
        "globalPid",
        "globalTid",
        "nameId",
        "value",
        "id",
    }
    wanted |= {"shortName", "demangledName", "eventType", "text", "utcEpochNs", "name"}
    older = {
        table: ", ".join(part for part in columns.split(", ") if part.split()[0] in wanted)
        for table, columns in SCHEMA.items()
    }
    older[RUNTIME] += ", eventClass INTEGER"
    export = Export(tmp_path / "old.sqlite", older)
    export.range(0, 100, "aten::mm, seq = 3")
    export.launch(50, {"name": "gemm<float>", "start": 60, "end": 70})
    trace = load_trace(export.close())
    assert [(event.name, trace.ops.text(event.op)) for event in trace.device_events] == [("gemm<float>", "aten::mm")]


def test_a_zipped_database_is_read(export: Export, tmp_path: Path) -> None:
    plain = convolutions(export)
    zipped = tmp_path / "report.sqlite.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert len(load_trace(zipped).device_events) == len(load_trace(plain).device_events) == 4
    zipped.write_bytes(gzip.compress(plain.read_bytes())[:-200])
    refused(zipped, "gzip ends too early")


def test_an_url_is_read(export: Export) -> None:
    pytest.importorskip("fsspec")
    plain = convolutions(export)
    assert len(load_trace(plain.as_uri()).device_events) == 4


def test_copies_have_a_bound(export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped = tmp_path / "report.sqlite.gz"
    zipped.write_bytes(gzip.compress(convolutions(export).read_bytes()))
    monkeypatch.setattr(nsys, "MOST_COPIED", 1_000)
    refused(zipped, "more than")


def test_names_of_files_are_not_parts_of_the_uri(export: Export, tmp_path: Path) -> None:
    odd = tmp_path / "a ?mode=rw&x#y%41.sqlite"
    convolutions(export).rename(odd)
    assert len(load_trace(odd).device_events) == 4
    assert not list(tmp_path.glob("*-journal"))


def test_the_file_is_left_as_it_is(export: Export, tmp_path: Path) -> None:
    path = convolutions(export)
    before = path.read_bytes()
    path.chmod(0o400)
    load_trace(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


# -- names of ranges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        (CONV, "aten::conv2d", {"Sequence number": 12, "Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3], [], []]}),
        ("aten::empty, op_id = 3", "aten::empty", {}),
        ("aten::add_, op_id = 3, sizes = [[], [2]]", "aten::add_", {"Input Dims": [[], [2]]}),
        ("aten::mm, seq = 5", "aten::mm", {"Sequence number": 5}),
        (
            "aten::mm, seq = 5, sizes = [[2, 3], [3, 2]]",
            "aten::mm",
            {"Sequence number": 5, "Input Dims": [[2, 3], [3, 2]]},
        ),
        ("MulBackward0, stashed seq=5", "MulBackward0", {"Sequence number": 5}),
        ("AddmmBackward0, seq = 596, op_id = 1719", "AddmmBackward0", {"Sequence number": 596}),
        (
            "autograd::engine::evaluate_function: AddmmBackward0, op_id = 1718",
            "autograd::engine::evaluate_function: AddmmBackward0",
            {},
        ),
        ("aten::cat, op_id = 3, sizes = [[2], [2", "aten::cat", {}),
        ("aten::cat, seq = 99999999999999999999, op_id = 3", "aten::cat", {}),
        ("aten::empty", "aten::empty", {}),
        ("forward", "forward", None),
        ("Optimizer.step#SGD.step, op_id = 9", "Optimizer.step#SGD.step", None),
        ("cub::DeviceReduce", "cub::DeviceReduce", None),
        ("", "", None),
    ],
)
def test_what_a_name_says(text: str, name: str, args: dict[str, Any] | None) -> None:
    named = nvtx.parse(text)
    assert named.name == name
    assert (None if named.args is None else json.loads(named.args or b"{}")) == args


@given(st.text(st.sampled_from("a:, =seqopidzn_[]()0123456789"), max_size=60))
def test_no_name_makes_arguments_that_are_no_json(text: str) -> None:
    args = nvtx.parse(f"aten::mm{text}").args
    if args:
        json.loads(args)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ProfilerStep#12", (0, "ProfilerStep")),
        ("step 12", (2, "step")),
        ("Step: 3", (2, "Step")),
        ("step_3/100", (2, "step")),
        ("train_step 4", (2, "train_step")),
        ("global_step=7", (2, "global_step")),
        ("iteration 4", (1, "iteration")),
        ("iter12", (1, "iter")),
        ("batch 5 of 10", (3, "batch")),
        ("train_step", (2, "train_step")),
        ("iteration", (1, "iteration")),
        ("step", None),
        ("optimizer step", None),
        ("step 1: load", None),
        ("layer 3", None),
        ("epoch 3", None),
        ("backstep 3", None),
    ],
)
def test_which_ranges_are_steps(name: str, kind: tuple[int, str] | None) -> None:
    assert nvtx.step_kind(name) == kind


def test_micro_batches_and_loaders_are_not_the_steps(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    for at in range(0, 1_000, 100):
        export.range(at, at + 90, f"iteration {at}")
        export.range(at, at + 40, f"step {at}")
        export.range(at + 1, at + 9, f"iteration {at}")
        export.range(at, at + 99, f"batch {at}", thread=2)
    trace = load_trace(export.close())
    assert [(step.start_ns, step.end_ns) for step in trace.steps] == [(at, at + 90) for at in range(0, 1_000, 100)]


def test_without_such_ranges_all_of_it_is_one_step(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    trace = load_trace(export.close())
    assert len(trace.steps) == 1
    assert not trace.steps_found


# -- files that are none, and hostile ones -----------------------------------------------------------------------------


def refused(path: Path, words: str) -> str:
    with pytest.raises(InputError) as failure:
        load_trace(path)
    message = str(failure.value)
    assert words in message
    assert message.count("\n") <= 2
    assert message.isprintable() or all(line.isprintable() for line in message.split("\n"))
    return message


def made(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


STRINGS = f"CREATE TABLE StringIds ({SCHEMA['StringIds']})"
KERNEL_TABLE = f"CREATE TABLE {KERNELS} ({SCHEMA[KERNELS]})"


@pytest.mark.parametrize("content", [databases.MAGIC, databases.MAGIC + bytes(84), databases.MAGIC + b"\xff" * 5_000])
def test_only_the_beginning_of_a_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(content)
    refused(path, "report.sqlite")


def test_a_truncated_database(export: Export) -> None:
    path = convolutions(export, steps=500)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    refused(path, "no database that can be read")


def test_databases_of_other_things(tmp_path: Path) -> None:
    message = refused(made(tmp_path / "other.sqlite", "CREATE TABLE users (id INTEGER)"), "no export of Nsight Systems")
    assert KERNELS in message
    refused(made(tmp_path / "empty.sqlite", STRINGS), "no export")


def test_a_report_without_kernels_says_how_to_record_them(export: Export) -> None:
    export.range(0, 9, "only a range")
    export.string("something")
    message = refused(export.close(), "no kernels of a GPU")
    assert "--trace=cuda,nvtx" in message


@pytest.mark.parametrize("value", ["'soon'", "1.5", "x'00ff'", "NULL"])
def test_values_of_other_types(tmp_path: Path, value: str) -> None:
    loose = SCHEMA[KERNELS].replace(" NOT NULL", "")
    path = made(
        tmp_path / "report.sqlite",
        STRINGS,
        f"CREATE TABLE {KERNELS} ({loose})",
        f"INSERT INTO {KERNELS} (start, end, deviceId) VALUES ({value}, 2, 0)",
    )
    refused(path, f"{KERNELS}.start holds")


def test_numbers_where_names_belong(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    export.connection.execute("UPDATE StringIds SET value = x'6162'")
    refused(export.close(), "StringIds.value holds bytes, not text")


def test_missing_columns(tmp_path: Path) -> None:
    path = made(tmp_path / "report.sqlite", STRINGS, f"CREATE TABLE {KERNELS} (start INTEGER, name TEXT)")
    refused(path, f"its table {KERNELS} has no column end")


@pytest.mark.parametrize("start", [1 << 62, -(1 << 63)])
def test_times_that_are_no_times(export: Export, start: int) -> None:
    export.launch(5, {"name": "k", "start": start, "end": 5})
    refused(export.close(), "times that are no times")


def test_a_view_in_place_of_a_table(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
    path = made(tmp_path / "report.sqlite", STRINGS, f"CREATE VIEW {KERNELS} AS {endless}")
    refused(path, "no export of Nsight Systems")


def forged(path: Path, *rows: tuple[str, str, str, int, str]) -> Path:
    """A database whose schema says something else than its definitions do."""
    made(path, STRINGS, "CREATE TABLE other (start INTEGER, end INTEGER)")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema=ON")
    connection.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def test_a_view_that_is_filed_as_a_table(tmp_path: Path) -> None:
    view = f"CREATE VIEW {KERNELS} AS SELECT start, end FROM other"
    table = f"CREATE TABLE {KERNELS.lower()}x(start INTEGER, end INTEGER)"
    refused(forged(tmp_path / "one.sqlite", ("table", KERNELS, KERNELS, 3, view)), "")
    refused(forged(tmp_path / "two.sqlite", ("table", KERNELS, KERNELS, 3, table), ("view", "v", "v", 0, view)), "")


def test_views_are_not_asked_even_if_their_name_got_through(tmp_path: Path) -> None:
    path = made(tmp_path / "report.sqlite", "CREATE TABLE t (start INTEGER)", "CREATE VIEW v AS SELECT start FROM t")
    with databases.Database(path, "report") as database:
        database.tables = frozenset({"v", "t"})
        assert list(database.rows("t", ("start",))) == []
        with pytest.raises(InputError, match="prohibited"):
            list(database.rows("v", ("start",)))
        with pytest.raises(InputError, match="not authorized"):
            list(database.rows("t", ("start",), where="WHERE abs(start) > 3"))
        with pytest.raises(InputError, match="not authorized"):
            list(database.rows("t", ("start",), where="WHERE start IN (SELECT randomblob(9))"))


def test_virtual_tables_and_generated_columns_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "virtual.sqlite"
    try:
        made(path, STRINGS, f"CREATE VIRTUAL TABLE {KERNELS} USING fts5(start, end)")
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no fts5")
    refused(path, "no export")
    path = made(
        tmp_path / "generated.sqlite",
        STRINGS,
        f"CREATE TABLE {KERNELS} (start INTEGER, end INTEGER GENERATED ALWAYS AS (start + 1))",
    )
    refused(path, "has no column end")


def test_triggers_do_not_run(export: Export) -> None:
    export.connection.execute("PRAGMA recursive_triggers=ON")
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    export.connection.execute(
        f"CREATE TRIGGER again AFTER INSERT ON {KERNELS} BEGIN INSERT INTO {KERNELS} SELECT * FROM {KERNELS}; END"
    )
    assert len(load_trace(export.close()).device_events) == 1


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_that_another_process_writes_to(export: Export, mode: str) -> None:
    path = convolutions(export)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode={mode}")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("INSERT INTO StringIds VALUES (900, 'x')")
    if mode == "WAL":
        writer.execute("COMMIT")
        writer.execute("BEGIN EXCLUSIVE")
    message = refused(path, "in use")
    assert "lies beside it" in message
    writer.execute("COMMIT")
    writer.close()
    assert len(load_trace(path).device_events) == 4


def test_a_lock_alone_is_not_waited_for(export: Export) -> None:
    path = convolutions(export)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert len(load_trace(path).device_events) == 4
    writer.close()


def test_huge_text_has_a_bound(export: Export) -> None:
    export.range(0, 9, "x" * (databases.LONGEST_VALUE + 1))
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    refused(export.close(), "too big")


def test_text_that_is_not_asked_for_may_be_huge(export: Export) -> None:
    export.string("y" * (databases.LONGEST_VALUE + 1))  # what the program printed lies in StringIds, too
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    assert len(load_trace(export.close()).device_events) == 1


def test_names_with_escapes_stay_inert(export: Export) -> None:
    for at in range(3):
        export.range(at * 100, at * 100 + 90, f"step \x1b[31m{at}")
        export.range(at * 100 + 1, at * 100 + 80, "aten::\x1b]0;title\x07conv\nforged, op_id = 1")
        export.launch(
            at * 100 + 5, {"name": f"\x1b[2J{TRANSPOSE}\nforged", "start": at * 100 + 9, "end": at * 100 + 40}
        )
    export.add("TARGET_INFO_GPU", name="\x1b[31mGPU\nforged")
    text = str(stridewise.analyze(export.close()))
    assert "\x1b" not in text
    assert "\nforged" not in text


def test_text_that_is_no_utf8(export: Export) -> None:
    export.launch(5, {"name": "k", "start": 1, "end": 40})
    export.connection.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT)")
    assert load_trace(export.close()).device_events[0].name == "k\ufffd"


def test_pages_that_repeat_end(export: Export) -> None:
    """Interior pages of a table that name one child again and again: 300 rows a level, more levels than patience."""
    path = export.path
    for at in range(2_000):
        export.launch(at, {"name": "k", "start": at + 1, "end": at + 2})
    (root,) = export.connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (KERNELS,)).fetchone()
    (size,) = export.connection.execute("PRAGMA page_size").fetchone()
    export.close()
    content = bytearray(path.read_bytes())

    def page(number: int) -> int:
        return (number - 1) * size

    def interior(number: int, child: int) -> None:
        cells = 400
        body = bytearray(size)
        first = size - cells * 5
        body[:12] = struct.pack(">BHHHBI", 5, 0, cells, first, 0, child)
        for cell in range(cells):
            body[12 + 2 * cell : 14 + 2 * cell] = struct.pack(">H", first + 5 * cell)
            body[first + 5 * cell : first + 5 * cell + 5] = struct.pack(">IB", child, min(cell, 127))
        content[page(number) : page(number) + size] = body

    leaf = next(
        struct.unpack(">I", content[page(root) + start : page(root) + start + 4])[0]
        for start in struct.unpack(">H", content[page(root) + 12 : page(root) + 14])
    )
    count = len(content) // size
    content += bytes(size * 4)
    content[28:32] = struct.pack(">I", count + 4)
    levels = [root, count + 1, count + 2, count + 3, count + 4]
    for level, below in zip(levels, [*levels[1:], leaf], strict=True):
        interior(level, below)
    path.write_bytes(content)
    refused(path, "more than its size allows")


@given(st.binary(max_size=4_096))
def test_random_bytes_after_the_magic(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.sqlite")
        path.write_bytes(databases.MAGIC + content)
        refused(path, "report.sqlite")


@functools.cache
def sound() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return convolutions(Export(Path(folder, "report.sqlite")), steps=30).read_bytes()


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 40))
def test_damaged_bytes_are_read_or_refused(seed: int, count: int) -> None:
    chance = random.Random(seed)
    content = bytearray(sound())
    for _ in range(count):
        content[chance.randrange(16, len(content))] = chance.randrange(256)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.sqlite")
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            str(stridewise.analyze(path))


def test_a_pipe_is_read_once(export: Export, tmp_path: Path) -> None:
    content = convolutions(export).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    try:
        assert len(load_trace(pipe).device_events) == 4
    finally:
        writer.join()
