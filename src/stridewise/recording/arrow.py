"""A recording's operators and calls as Arrow tables. Built from columns, not from rows. pyarrow is an extra."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct

from stridewise.errors import UsageError
from stridewise.recording.dtypes import from_cpp, from_onednn
from stridewise.recording.model import MARK, CallLog
from stridewise.recording.nesting import Numbers, integers
from stridewise.recording.onednn import Reorder
from stridewise.recording.trace import OpArgs, Trace, is_sizes
from stridewise.results import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow


class ArrowTables(NamedTuple):
    """A recording as tables. Their rows refer to each other by position."""

    copies: pyarrow.Table
    """Layout copies, in order of time."""
    calls: pyarrow.Table
    """What the program called of torch; empty for traces that were recorded elsewhere."""
    ops: pyarrow.Table
    """Operators, by thread and start."""


class Field(Struct, frozen=True):
    """A column of one of the tables."""

    name: str
    type: str
    """As Arrow names it; `dictionary` is a string, dictionary-encoded."""
    says: str
    nullable: bool = True


_SITE = (
    Field("file", "dictionary", "Where the call stands"),
    Field("line", "int32", "Counted from 1"),
    Field("column", "int32", "UTF-8 bytes from 0, as `ast` has it"),
    Field("end_line", "int32", "Where the expression ends"),
    Field("end_column", "int32", "Likewise"),
    Field("in_function", "dictionary", "The function of the program around it"),
    Field("expression", "dictionary", "Its source"),
    Field("via", "dictionary", "The nearest frame inside torch, where the call was made there"),
    Field("module", "dictionary", "Path of the `nn.Module` that was running, such as `encoder.layers.3.fc1`"),
)
OPS = (
    Field("op", "int64", "Its row in this table", False),
    Field("name", "dictionary", "Such as `aten::addmm`; of a log of oneDNN `onednn::` and the primitive", False),
    Field("start_ns", "int64", "Since the recording began; null in a log without times of day"),
    Field("duration_ns", "int64", "On the CPU, with what it called; of a log of oneDNN what ran", False),
    Field("device_duration_ns", "int64", "Of the kernels and copies that it launched itself, not those of operators in"
          " it; null where no device was recorded"),
    Field("thread", "int32", "Numbers of threads, from 0", False),
    Field("parent", "int64", "The operator around it: a row of this table"),
    Field("call", "int64", "The call of the program around it: a row of `calls`"),
    Field("module", "dictionary", "Path of the `nn.Module` that was running"),
    Field("backward", "bool", "It ran in a node of the backward graph", False),
    Field("step", "int32", "The step that it started in, from 0; null outside steps"),
    Field("input_sizes", "list<list<int64>>", "Of each argument; null for lists of tensors, and where shapes were not"
          " recorded"),
    Field("input_strides", "list<list<int64>>", "In elements; null for scalars and what is no strided tensor"),
    Field("input_dtypes", "list<string>", "torch's names, such as `float32`; for other arguments the profiler's words"),
)  # fmt: skip
CALLS = (
    Field("call", "int64", "Its row in this table", False),
    Field("function", "dictionary", "What was called, such as `torch.nn.functional.linear`", False),
    Field("start_ns", "int64", "Since the recording began; null if its mark was not recorded"),
    Field("duration_ns", "int64", "Likewise"),
    Field("thread", "int32", "Numbers of threads, as in `ops`"),
    Field("step", "int32", "The step that it started in, from 0; null outside steps"),
    *_SITE,
    Field("input_sizes", "list<list<int64>>", "Of each tensor in its arguments; null if its layout is not known"),
    Field("input_strides", "list<list<int64>>", "In elements"),
    Field("input_dtypes", "list<string>", "Such as `float32`"),
    Field("output_sizes", "list<list<int64>>", "Of each tensor in what it gave"),
    Field("output_strides", "list<list<int64>>", "In elements"),
    Field("output_dtypes", "list<string>", "Such as `float32`"),
)
COPIES = (
    Field("copy", "int64", "Its row in this table", False),
    Field("kind", "dictionary", "Who asked for it: `hidden`, `explicit`, `gradient`, …", False),
    Field("change", "dictionary", "What it does: `reorder`, `pack`, `unpack`, `materialize`", False),
    Field("cast", "bool", "It changes the dtype in the same pass", False),
    Field("op", "int64", "The operator that copies: a row of `ops`; null for copies inside a library"),
    Field("op_name", "dictionary", "Its nearest named parent, such as `aten::layer_norm`", False),
    Field("call", "int64", "The call that holds it, in backward the forward call: a row of `calls`"),
    Field("function", "dictionary", "What that call called"),
    *_SITE,
    Field("step", "int32", "From 0; null outside steps"),
    Field("sizes", "list<int64>", "Null for a vendor's transpose"),
    Field("source_strides", "list<int64>", "In elements"),
    Field("strides", "list<int64>", "In elements; null for a library's blocked format"),
    Field("source_dtype", "dictionary", "Such as `float32`"),
    Field("dtype", "dictionary", "Such as `float32`"),
    Field("bytes_moved", "int64", "Read and written; an element that is read more than once counts once"),
    Field("bytes_written", "int64", "Written alone"),
    Field("duration_ns", "int64", "On the device, if it ran there, else on the CPU"),
    Field("backward", "bool", "It ran in backward", False),
    Field("inferred", "bool", "The call was not recorded but concluded", False),
    Field("taxed", "bool", "It counts for the layout tax", False),
    Field("reason", "dictionary", "Why it does not"),
    Field("finding", "dictionary", "Fingerprint of the finding that it is charged to"),
)


def arrow() -> Any:
    """The library. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise UsageError("Tables need pyarrow.", advice='pip install "stridewise[arrow]"') from None


def schema(fields: Iterable[Field]) -> Any:
    """The Arrow schema of a table, with what each column says as its metadata."""
    pa = arrow()
    types = {
        "int64": pa.int64(),
        "int32": pa.int32(),
        "bool": pa.bool_(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
        "list<int64>": pa.list_(pa.int64()),
        "list<list<int64>>": pa.list_(pa.list_(pa.int64())),
        "list<string>": pa.list_(pa.string()),
    }
    rows = [
        pa.field(row.name, types[row.type], nullable=row.nullable, metadata={"description": row.says}) for row in fields
    ]
    return pa.schema(rows, metadata={"stridewise.schema_version": str(SCHEMA_VERSION)})


def table(fields: Sequence[Field], columns: dict[str, Any]) -> Any:
    """A table of columns, which are arrays of Arrow, arrays of numpy, or lists with None for null."""
    pa, wanted = arrow(), schema(fields)
    arrays = []
    for field in wanted:
        values = columns[field.name]
        if not isinstance(values, pa.Array):
            values = _wellformed(values) if pa.types.is_dictionary(field.type) else values
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            values = pa.array(values, plain)
        arrays.append(
            values.dictionary_encode()
            if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type)
            else values
        )
    return pa.Table.from_arrays(arrays, schema=wanted)


def maybe(values: Any) -> Any:
    """A column in which numbers below 0 are null."""
    return arrow().array(values, mask=np.asarray(values) < 0)


# ------------------------------------------------------------------------------------------------------------ operators


def ops_table(trace: Trace) -> tuple[Any, Any]:
    """The operators, and for each position in `trace.ops` its row, -1 for the recorder's own marks."""
    if trace.format == "onednn":
        return _primitives(trace), np.empty(0, np.int64)
    ops = trace.ops
    names = integers(ops.name)
    is_mark = np.array([name.startswith(MARK) for name in ops.names], bool)
    kept = np.flatnonzero(~is_mark[names]) if len(names) else np.empty(0, np.int64)
    rows = np.full(len(ops) + 1, -1, np.int64)  # one more: of -1, which is no operator
    rows[kept] = np.arange(len(kept))
    parent = np.append(integers(ops.parent), -1)
    above = parent[kept]
    while (marks := (above >= 0) & (rows[above] < 0)).any():
        above[marks] = parent[above[marks]]
    start_ns = integers(ops.start_ns)[kept]
    sizes, strides, dtypes = _inputs(trace, kept)
    columns = {
        "op": np.arange(len(kept)),
        "name": _coded(names[kept], ops.names),
        "start_ns": start_ns - trace.start_ns,
        "duration_ns": integers(ops.end_ns)[kept] - start_ns,
        "device_duration_ns": _on_device(trace, kept),
        "thread": integers(ops.thread)[kept],
        "parent": maybe(rows[above]),
        "call": maybe(integers(ops.call)[kept].astype(np.int64)),
        "module": _coded(integers(ops.module_call)[kept], _modules(trace)),
        "backward": integers(ops.node)[kept] >= 0,
        "step": steps_of(trace, start_ns),
        "input_sizes": sizes,
        "input_strides": strides,
        "input_dtypes": dtypes,
    }
    return table(OPS, columns), rows[:-1]


def _inputs(trace: Trace, kept: Any) -> tuple[Any, Any, Any]:
    """Sizes, strides and dtypes of inputs: equal ones are decoded once."""
    pa = arrow()
    distinct, which = trace.ops.args.distinct()
    rows = list(map(_described, distinct))
    taken = pa.array(which[kept], pa.int64(), mask=which[kept] < 0)
    nested = pa.list_(pa.list_(pa.int64()))
    types = (nested, nested, pa.list_(pa.string()))
    parts = zip(*rows, strict=True) if rows else ((), (), ())
    sizes, strides, dtypes = (pa.array(list(part), type).take(taken) for part, type in zip(parts, types, strict=True))
    return sizes, strides, dtypes


def _described(args: OpArgs) -> tuple[Any, Any, Any]:
    dims = args.dims or args.old_dims
    if not dims and not args.types:
        return None, None, None
    sizes = [each if is_sizes(each) else None for each in dims]
    strides = [
        given if is_sizes(given) and size is not None and len(given) == len(size) and size else None
        for size, given in zip(sizes, [*args.strides, *[None] * len(sizes)], strict=False)
    ]
    dtypes = list(_wellformed(from_cpp(name) or name or None for name in args.types))
    return sizes, strides if args.strides else None, dtypes


def _on_device(trace: Trace, kept: Any) -> Any:
    pa = arrow()
    if not trace.device_events:
        return pa.nulls(len(kept), pa.int64())
    total = np.zeros(len(trace.ops), np.int64)
    launched = [event for event in trace.device_events if event.op >= 0]
    np.add.at(total, [event.op for event in launched], [event.duration_ns for event in launched])
    return pa.array(total[kept])


def _primitives(trace: Trace) -> Any:
    """What ran inside oneDNN, of a log that holds nothing else."""
    runs = list(trace.library)
    nothing = [None] * len(runs)
    starts = [None if run.start_ns is None else run.start_ns - trace.base_ns for run in runs]
    reorders = [run if isinstance(run, Reorder) else None for run in runs]
    names = ["reorder" if isinstance(run, Reorder) else run.primitive for run in runs]
    columns: dict[str, Any] = {field.name: nothing for field in OPS}
    columns |= {
        "op": np.arange(len(runs)),
        "name": [f"onednn::{name}" for name in names],
        "start_ns": starts if trace.has_wall_time else nothing,
        "duration_ns": [run.duration_ns for run in runs],
        "thread": [0] * len(runs),
        "backward": [False] * len(runs),
        "step": steps_of(trace, np.array([start or 0 for start in starts], np.int64)),
        "input_sizes": [run and [list(run.sizes)] for run in reorders],
        "input_strides": [run and [run.source_strides and list(run.source_strides)] for run in reorders],
        "input_dtypes": [run and [from_onednn(run.source_dtype)] for run in reorders],
    }
    return table(OPS, columns)


# ---------------------------------------------------------------------------------------------------------------- calls


def calls_table(trace: Trace) -> Any:
    """The calls of the call log."""
    log = trace.log or CallLog()
    start_ns, duration_ns, threads = _times(trace, len(log.calls))
    known = start_ns >= 0
    columns = {
        "call": np.arange(len(log.calls)),
        "function": _coded(_numbers(call.function for call in log.calls), log.functions),
        "start_ns": maybe(start_ns),
        "duration_ns": maybe(duration_ns),
        "thread": maybe(threads),
        "step": steps_of(trace, np.where(known, start_ns + trace.start_ns, -1)),
        **_sites(trace, log),
    }
    for name in ("input", "output"):
        parts = _layouts(log, [getattr(call, f"{name}s") for call in log.calls])
        columns |= dict(zip((f"{name}_sizes", f"{name}_strides", f"{name}_dtypes"), parts, strict=True))
    return table(CALLS, columns)


def _times(trace: Trace, calls: int) -> tuple[Any, Any, Any]:
    """When each call began, how long it took and where, told by its mark; -1: there is none."""
    ops = trace.ops
    start_ns, duration_ns = np.full(calls, -1, np.int64), np.full(calls, -1, np.int64)
    threads = np.full(calls, -1, np.int32)
    is_mark = np.array([name.startswith(MARK) and name[len(MARK) :].isdecimal() for name in ops.names], bool)
    if len(ops) and is_mark.any():
        at = np.flatnonzero(is_mark[integers(ops.name)] & (integers(ops.call) >= 0))
        call = integers(ops.call)[at]
        begun = integers(ops.start_ns)[at]
        start_ns[call] = begun - trace.start_ns
        duration_ns[call] = integers(ops.end_ns)[at] - begun
        threads[call] = integers(ops.thread)[at]
    return start_ns, duration_ns, threads


def _sites(trace: Trace, log: CallLog) -> dict[str, Any]:
    """Where the calls were made: each site is looked at once, however many calls are there."""
    at = _numbers(call.site for call in log.calls)
    vias = [f"{row.file}:{row.line} in {row.function}" for row in log.sites]
    columns: dict[str, Any] = {
        name: _coded(at, [getattr(row, name) or "" for row in log.sites]) for name in ("file", "expression")
    }
    for name in ("line", "column", "end_line", "end_column"):
        values = arrow().array([getattr(row, name) for row in log.sites], arrow().int32())
        columns[name] = values.take(maybe(at))
    return columns | {
        "in_function": _coded(at, [row.function for row in log.sites]),
        "via": _coded(_numbers(call.via for call in log.calls), vias),
        "module": _coded(_numbers(call.module_call for call in log.calls), _modules(trace)),
    }


def _layouts(log: CallLog, refs: list[list[int]]) -> tuple[Any, Any, Any]:
    """Sizes, strides and dtypes of the tensors that each call names."""
    pa = arrow()
    offsets = np.zeros(len(refs) + 1, np.int32)
    np.cumsum([len(row) for row in refs], out=offsets[1:])
    of_ref = _numbers(ref.layout for ref in log.refs)
    which = maybe(of_ref[_numbers(ref for row in refs for ref in row)])
    numbers = pa.list_(pa.int64())
    sizes, strides, dtypes = (
        pa.ListArray.from_arrays(offsets, pa.array([getattr(row, name) for row in log.layouts], type).take(which))
        for name, type in (("sizes", numbers), ("strides", numbers), ("dtype", pa.string()))
    )
    return sizes, strides, dtypes


def _numbers(values: Iterable[int]) -> Any:
    return np.fromiter(values, np.int32)


# --------------------------------------------------------------------------------------------------------------- shared


def steps_of(trace: Trace, start_ns: Any) -> Any:
    """The step that each moment lies in; null outside."""
    if not trace.steps:
        return arrow().nulls(len(start_ns), arrow().int32())
    starts = np.array([step.start_ns for step in trace.steps])
    ends = np.array([step.end_ns for step in trace.steps])
    step = np.searchsorted(starts, start_ns, "right") - 1
    return maybe(np.where(start_ns < ends[step], step, -1).astype(np.int32))


def _modules(trace: Trace) -> list[str]:
    """The module of each module call."""
    log = trace.log
    return [] if log is None else [trace.module_path(index) or "" for index in range(len(log.module_calls))]


def _coded(codes: Any, words: Sequence[str]) -> Any:
    """A column of words, each given by its number; null for those below 0 and empty ones. Equal words become one."""
    pa = arrow()
    numbers = Numbers()
    same = np.array([numbers[word] if word else -1 for word in words] + [-1], np.int32)
    indices = maybe(same[codes])
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(_wellformed(numbers)), pa.string()))


def _wellformed(texts: Iterable[str | None]) -> Iterator[str | None]:
    """Texts that are UTF-8: names of files may hold half a surrogate pair."""
    return (None if text is None else text.encode("utf-8", "replace").decode() for text in texts)
