"""A recording as tables: what they hold, where it comes from, and that Parquet keeps it."""

import importlib.util
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

import stridewise
from stridewise.errors import UsageError
from stridewise.recording.arrow import CALLS, COPIES, OPS
from stridewise.recording.handle import Recording
from stridewise.recording.model import MARK

DOCS = Path(__file__).parents[2] / "docs"
TABLES = {"copies": COPIES, "calls": CALLS, "ops": OPS}


def work():
    x = torch.ones(8, 4, requires_grad=True)
    y = x.t().contiguous() + 1
    torch.cat([y, y]).sum().backward()


@pytest.fixture(scope="module")
def recording():
    with stridewise.record() as recording:
        for _ in range(2):
            work()
            stridewise.step()
    return recording


@pytest.fixture(scope="module")
def tables(recording):
    return recording.to_arrow()


@pytest.mark.parametrize("name", list(TABLES))
def test_the_schema_is_the_documented_one(tables, name):
    table = getattr(tables, name)
    table.validate(full=True)
    assert table.column_names == [field.name for field in TABLES[name]]
    for given, field in zip(table.schema, TABLES[name], strict=True):
        said = str(given.type).replace("element: ", "").replace("item: ", "")
        assert said == field.type or (field.type == "dictionary" and said.startswith("dictionary<values=string"))
        assert given.nullable is field.nullable
        assert given.nullable or not table[field.name].null_count
        assert given.metadata[b"description"].decode() == field.says
    assert table.schema.metadata == {b"stridewise.schema_version": b"1"}


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("arrow_of_docs", DOCS / "arrow.py")
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    assert docs.page() == docs.PAGE.read_text(encoding="utf-8"), "python docs/arrow.py"


def test_copies_are_those_of_the_report(recording, tables):
    report = stridewise.analyze(recording)
    rows = tables.copies.to_pylist()
    assert len(rows) == len(report.copies) > 0
    for row, copy in zip(rows, report.copies, strict=True):
        for name in ("kind", "change", "step", "bytes_moved", "duration_ns", "taxed", "finding", "source_dtype"):
            assert row[name] == getattr(copy, name)
        assert row["strides"] == list(copy.strides)
        assert row["expression"] == copy.site.expression
        assert row["function"] == copy.call
        assert row["op_name"] == copy.op


def test_rows_refer_to_each_other(tables):
    calls, ops = tables.calls.to_pylist(), tables.ops.to_pylist()
    (first, *_) = [row for row in tables.copies.to_pylist() if row["change"] == "reorder" and not row["backward"]]
    assert ops[first["op"]]["name"] == "aten::copy_"
    assert ops[first["op"]]["input_sizes"][:2] == [first["sizes"]] * 2
    assert ops[first["op"]]["input_strides"][:2] == [first["strides"], first["source_strides"]]
    assert ops[first["op"]]["call"] == first["call"]
    call = calls[first["call"]]
    assert (call["function"], call["expression"]) == ("torch.Tensor.contiguous", "x.t().contiguous()")
    assert (call["input_strides"], call["output_strides"]) == ([[1, 4]], [[8, 1]])
    assert call["input_dtypes"] == ["float32"]
    outer = ops[first["op"]]
    while outer["parent"] is not None:
        inner, outer = outer, ops[outer["parent"]]
        assert outer["start_ns"] <= inner["start_ns"]
        assert inner["start_ns"] + inner["duration_ns"] <= outer["start_ns"] + outer["duration_ns"]
    assert outer["name"] == first["op_name"]


def test_operators_are_those_of_the_trace_without_our_marks(recording, tables):
    trace = recording.trace
    names = [name for name in (trace.ops.text(index) for index in range(len(trace.ops))) if not name.startswith(MARK)]
    assert tables.ops["name"].to_pylist() == names
    assert tables.ops["device_duration_ns"].null_count == len(names)
    assert {row for row in tables.ops["step"].to_pylist() if row is not None} == {0, 1}
    assert any(tables.ops["backward"].to_pylist())


def test_lists_of_tensors_have_no_one_size(tables):
    (row, *_) = [row for row in tables.ops.to_pylist() if row["name"] == "aten::cat"]
    assert row["input_sizes"][0] is None
    assert row["input_strides"][0] is None
    assert row["input_dtypes"][0] == "TensorList"


@pytest.mark.parametrize("name", list(TABLES))
def test_parquet_keeps_it(tables, name):
    table = getattr(tables, name)
    file = io.BytesIO()
    parquet.write_table(table, file)
    again = parquet.read_table(io.BytesIO(file.getvalue()))
    assert again.equals(table)
    assert again.schema.equals(table.schema)
    assert again.schema.field(1).type == table.schema.field(1).type


def test_a_saved_recording_gives_the_same_tables(recording, tables, tmp_path):
    recording.save(tmp_path / "r.json.gz")
    again = stridewise.load(tmp_path / "r.json.gz").to_arrow()
    assert all(mine.equals(yours) for mine, yours in zip(again, tables, strict=True))


def test_a_trace_of_the_profiler_has_no_calls(tmp_path):
    with torch.profiler.profile(record_shapes=True) as profiler:
        work()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    tables = stridewise.load(tmp_path / "trace.json").to_arrow()
    assert (tables.calls.num_rows, tables.ops["call"].null_count) == (0, tables.ops.num_rows)
    assert "reorder" in tables.copies["change"].to_pylist()
    assert set(tables.copies["call"].to_pylist()) == {None}


def test_a_trace_without_shapes(tmp_path):
    with torch.profiler.profile() as profiler:
        work()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    tables = stridewise.load(tmp_path / "trace.json").to_arrow()
    assert tables.copies.num_rows == 0
    assert tables.ops.num_rows > 10
    assert tables.ops["input_strides"].null_count == tables.ops.num_rows


def test_kernels_of_a_device_count_for_the_operator_that_launched_them(tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9, "pid": 1, "tid": 1,
         "args": {"External id": 5}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 1, "pid": 1, "tid": 1,
         "args": {"correlation": 7, "External id": 5}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 3, "pid": 0, "tid": 7,
         "args": {"correlation": 7, "External id": 5, "device": 0, "stream": 7}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::view", "ts": 12, "dur": 1, "pid": 1, "tid": 1, "args": {}},
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    ops = stridewise.load(tmp_path / "t.json").to_arrow().ops
    assert dict(zip(ops["name"].to_pylist(), ops["device_duration_ns"].to_pylist(), strict=True)) == {
        "aten::mm": 3000,
        "aten::view": 0,
    }


ONEDNN = """\
onednn_verbose,v1,primitive,exec,cpu,reorder,jit,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x3x4x5,0.5
onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward,src:f32::blocked:acdb::f0,,alg:direct,mb2,1.5
"""


def test_a_log_of_onednn(tmp_path):
    (tmp_path / "verbose.log").write_text(ONEDNN)
    tables = stridewise.load(tmp_path / "verbose.log").to_arrow()
    assert tables.ops["name"].to_pylist() == ["onednn::reorder", "onednn::convolution"]
    assert tables.ops["duration_ns"].to_pylist() == [500_000, 1_500_000]
    assert tables.ops["input_sizes"].to_pylist() == [[[2, 3, 4, 5]], None]
    assert tables.ops["start_ns"].null_count == 2
    assert tables.copies["strides"].to_pylist() == [[60, 1, 15, 3]]
    assert tables.copies["op"].to_pylist() == [None]
    assert tables.calls.num_rows == 0


def test_what_cannot_be_decoded_is_null(tmp_path):
    odd = {"Input Dims": [[2, 3], [[2], [3]], "x", []], "Input Strides": [[3, 1], 7, None, []], "Input type": ["float"]}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::op", "ts": number, "dur": 1, "pid": 1, "tid": 1, "args": args}
        for number, args in enumerate((odd, {"Input Dims": 5}, {}))
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    ops = stridewise.load(tmp_path / "t.json").to_arrow().ops
    assert ops["input_sizes"].to_pylist() == [[[2, 3], None, None, []], None, None]
    assert ops["input_strides"].to_pylist() == [[[3, 1], None, None, None], None, None]
    assert ops["input_dtypes"].to_pylist() == [["float32"], None, None]


def test_without_pyarrow(recording, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'pip install "stridewise\[arrow\]"'):
        recording.to_arrow()


def test_it_needs_no_torch(recording, tmp_path):
    import subprocess

    recording.save(tmp_path / "r.json")
    code = "import sys; sys.modules['torch'] = None; import stridewise; t = stridewise.load(sys.argv[1]).to_arrow()"
    code += "; print(t.ops.num_rows)"
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "r.json"], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == str(recording.to_arrow().ops.num_rows), result.stderr


def test_while_it_is_being_made_there_are_none():
    with pytest.raises(stridewise.errors.RecordingError, match="not finished"):
        Recording().to_arrow()
    assert pa.__version__
