"""Texts that are read in pieces, cut off, damaged, mended, or traps."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.places import Places
from stridewise.errors import InputError
from stridewise.recording import build, kineto, pieces, text
from stridewise.recording.formats import load_trace
from stridewise.recording.handle import Recording
from stridewise.recording.trace import Trace

NAMES = ["aten::add", 'a }, {"ph": "X"', "]}", "\\", '"', "nan, inf", "ä\u2028", "x" * 300, "}]\n}", '"traceEvents": [']


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of more than 700 bytes is read in pieces, and of more than 3 kB not kept."""
    monkeypatch.setattr(pieces, "PIECE", 700)
    monkeypatch.setattr(pieces, "LONGEST", 50_000)
    monkeypatch.setattr(kineto, "_KEPT", 3000)


def event(number: int, name: str = "aten::add", **args: Any) -> dict[str, Any]:
    shapes = {"Input Dims": [[2, number % 3], []], "Input Strides": [[1, 2], []], "Input type": ["float", "Scalar"]}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": number % 2, "ts": number * 10.5, "dur": 5} | {
        "args": {"External id": number, "Sequence number": number + 7, **shapes, **args}
    }


def trace_of(events: list[dict[str, Any]], *, indent: int | None = None, first: bool = True) -> bytes:
    keys: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 3, "note": '"traceEvents": [ }, { '}
    file = {**keys, "traceEvents": events} if first else {"traceEvents": events, **keys}
    return json.dumps(file, indent=indent).encode()


def summary(trace: Trace) -> list[Any]:
    ops = trace.ops
    rows = [(ops[i], ops.args[i].dims, ops.args[i].strides, ops.args[i].sequence) for i in range(len(ops))]
    frames = [list(trace.frames.around(0, at)) for at in range(0, 10_000, 997)]
    return [rows, trace.device_events, frames, list(ops.args.numbers()), trace.base_ns, trace.steps]


# -- in pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "indented"])
@pytest.mark.parametrize("first", [True, False], ids=["keys-first", "keys-last"])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_a_long_text_is_read_as_a_short_one(
    indent: int | None, first: bool, zipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event(number, NAMES[number % len(NAMES)]) for number in range(60)]
    events += [{"ph": "X", "cat": "python_function", "name": "m.py(3): f", "pid": 1, "tid": 0, "ts": 5, "dur": 300}]
    events += [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9, "dur": 3, "args": {"device": 0, "stream": 7}}]
    content = trace_of(events, indent=indent, first=first)
    content = gzip.compress(content) if zipped else content
    long = kineto.read(content, "it")
    monkeypatch.setattr(pieces, "PIECE", 10**9)
    monkeypatch.setattr(kineto, "_KEPT", 10**9)
    assert summary(long) == summary(kineto.read(content, "it"))
    assert len(long.ops) == 60


@given(
    names=st.lists(st.sampled_from(NAMES) | st.text(max_size=40), min_size=1, max_size=60),
    nested=st.lists(st.dictionaries(st.text(max_size=9), st.none() | st.integers(0, 9), max_size=3), max_size=4),
    indent=st.sampled_from([None, 1]),
)
def test_names_and_arguments_cut_nothing(names: list[str], nested: list[dict[str, Any]], indent: int | None) -> None:
    content = trace_of([event(number, name, more=nested) for number, name in enumerate(names)], indent=indent)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(pieces, "PIECE", 300)
        monkeypatch.setattr(kineto, "_KEPT", 1000)
        long = kineto.read(content, "it")
    assert summary(long) == summary(kineto.read(content, "it"))


@pytest.mark.usefixtures("in_pieces")
def test_a_call_log_behind_the_events_may_be_long() -> None:
    content = trace_of([event(number) for number in range(30)])[:-1]
    content += b', "stridewise": {"version": 1, "notes": ["%s"]}}' % (b'x }, { \\" ' * 900)
    assert kineto.read(content, "it").notes[0].startswith("x }, {")


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" " * 5000, "no events in its first"),
        (b"[" * 5000, "no trace"),
        (b'{"a":' * 5000, "no events"),
        (b'{"traceEvents": [' + b'{"ph": "X", "name": "' + b"x" * 90_000, "longer than"),
        (b'{"traceEvents": [' + b'{"args":' * 9000, "longer than|no trace"),
        (b'{"traceEvents": [' + b'{"ph": "X", "ts": 1},' * 900 + b'{"ts": "soon"},' * 900 + b"]}", "no trace"),
        (b'{"traceEvents": [' + b'{"ph": "X", "ts": 1},' * 900 + b'{"ts": },' * 900 + b"]}", "no trace"),
        (b"\xff" * 5000, "no events"),
    ],
    ids=["blank", "brackets", "objects", "long-name", "deep", "wrong-type", "malformed", "binary"],
)
def test_a_long_text_that_is_no_trace(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        kineto.read(content, "it")
    assert len(str(caught.value).splitlines()) <= 3


# -- incomplete --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10**9, 500], ids=["whole", "in-pieces"])
@pytest.mark.parametrize("shape", ["keys-first", "keys-last", "list", "indented"])
def test_a_file_that_ends_anywhere_is_read_as_far_as_it_goes(
    length: int, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", length)
    events = [event(number, NAMES[number % len(NAMES)]) for number in range(12)]
    content = trace_of(events, first=shape != "keys-last", indent=3 if shape == "indented" else None)
    content = json.dumps(events).encode() if shape == "list" else content
    most = 0
    for end in range(len(content)):
        try:
            trace = kineto.read(content[:end], "it")
        except InputError:
            assert most == 0  # nothing was there yet
            continue
        assert len(trace.ops) >= most
        assert any("ends too early" in note for note in trace.notes) or content[end:].strip(b"]} \n") == b""
        most = len(trace.ops)
    assert most == 12


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.999])
def test_a_gzip_that_ends_early_is_read_as_far_as_it_goes(kept: float, tmp_path: Path) -> None:
    content = gzip.compress(trace_of([event(number, str(zlib.crc32(b"%d" % number))) for number in range(3000)]))
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content[: int(len(content) * kept)])
    trace = load_trace(path)
    assert 0 < len(trace.ops) <= 3000
    assert any("gzip ends too early" in note for note in trace.notes)


def test_a_damaged_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    content = bytearray(
        gzip.compress(trace_of([event(number, str(zlib.crc32(b"%d" % number))) for number in range(3000)]))
    )
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    try:
        notes = load_trace(path).notes
    except InputError:  # what the damaged half unpacks to may be no JSON
        return
    assert any("incomplete" in note for note in notes)


def test_rubbish_behind_a_gzip_and_gzips_in_a_row_are_read() -> None:
    content = trace_of([event(number) for number in range(50)])
    assert len(kineto.read(gzip.compress(content) + b"rubbish", "it").ops) == 50
    assert len(kineto.read(gzip.compress(content[:900]) + gzip.compress(content[900:]), "it").ops) == 50


def test_an_incomplete_recording_is_a_trace_without_a_log() -> None:
    content = trace_of([event(1), event(2, "stridewise:0")])[:-1] + b', "stridewise": {"version": 1, "sites": [['
    trace = kineto.read(content, "it")
    assert trace.log is None
    assert len(trace.ops) == 2
    assert trace.notes.count(build.LOG_LOST) == 1
    foreign = kineto.read(trace_of([event(1), event(2)])[:-1], "it")
    assert any("ends too early" in note for note in foreign.notes)
    assert build.LOG_LOST not in foreign.notes


# -- mended ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10**9, 500], ids=["whole", "in-pieces"])
@pytest.mark.parametrize(
    "wrong",
    [
        b'"bandwidth": nan',
        b'"bandwidth": -inf',
        b'"bandwidth": Infinity',
        b'"bandwidth": -nan(ind)',
        rb'"file": "C:\Users\model.py"',
        b'"name": "\xff\xfe"',
        b'"name": "a\x01b"',
    ],
    ids=["nan", "inf", "infinity", "nan-ind", "backslash", "latin", "control"],
)
def test_what_the_profiler_writes_and_json_has_not_is_mended(
    wrong: bytes, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", length)
    content = trace_of([event(number) for number in range(30)])
    content = content.replace(b'"External id": 17,', b'"External id": 17, %s,' % wrong)
    assert len(kineto.read(content, "it").ops) == 30


# -- traps -------------------------------------------------------------------------------------------------------------


class Zeros(BytesIO):
    """Zip upon zip of nothing but white space."""

    def __init__(self) -> None:
        block = gzip.compress(b" " * 10_000_000)
        super().__init__(block * 40)


def test_a_bomb_of_white_space_is_given_up_on() -> None:
    with pytest.raises(InputError, match="no events in its first 1 MB"):
        kineto.read_text(text.Text(Zeros(), "bomb"))


def test_more_text_than_anyone_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_TEXT", 100_000)
    with pytest.raises(InputError, match="holds more than"):
        kineto.read(trace_of([event(number) for number in range(2000)]), "it")


def test_many_false_cuts_cost_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name full of what looks like the end of an event: every try decodes a piece."""
    monkeypatch.setattr(pieces, "PIECE", 100_000)
    content = trace_of([event(1), event(2, '}, {"' * 100_000), event(3)])
    assert len(kineto.read(content, "it").ops) == 3


@pytest.mark.parametrize("depth", [100, 5_000, 2_000_000])
def test_deep_nesting_is_an_error_or_none(depth: int) -> None:
    content = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "args": {"a": %s%s}}]}' % (b"[" * depth, b"]" * depth)
    with suppress(InputError):
        assert len(kineto.read(content, "it").ops) == 1


def test_many_levels_of_operators_take_no_time() -> None:
    events = [{**event(1), "tid": 0, "ts": number, "dur": 2 * (20_000 - number)} for number in range(20_000)]
    start = time.process_time()
    trace = kineto.read(json.dumps(events).encode(), "it")
    assert trace.ops.parent[99] == 98
    assert max(len(list(trace.ops.around(op))) for op in (0, 99, 5_000, 19_999)) == build.DEEPEST_OP + 1
    assert time.process_time() - start < 60  # minutes, if it were quadratic


def test_modules_in_modules_have_a_path_of_some_length() -> None:
    frames = [
        {"ph": "X", "cat": "python_function", "name": f"nn.Module: Layer_{n}", "ts": n, "dur": 99_999 - 2 * n}
        for n in range(20_000)
    ]
    deepest = {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "ts": 30_000, "dur": 1}
    trace = kineto.read(json.dumps([*frames, deepest]).encode(), "it")
    site = Places(trace).of_op(0)
    assert site is not None
    assert 1000 < len(site.module or "") <= 2000


def test_the_words_that_begin_the_events_may_stand_anywhere_often() -> None:
    with pytest.raises(InputError, match="no trace"):
        kineto.read(b'{"a":{' + b'"traceEvents":[1],' * 50_000, "it")


def test_events_without_anything_are_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1000)
    monkeypatch.setattr(pieces, "LONGEST", 5000)
    content = b'{"traceEvents":[' + b"{}," * 20_000 + json.dumps(event(1)).encode() + b"]}"
    assert len(kineto.read(content, "it").ops) == 1


def test_a_file_that_unpacks_to_a_hundred_times_its_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_HARMLESS", 100_000)
    kernel = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1},'
    with pytest.raises(InputError, match="unpacks to more than 100 times"):
        kineto.read(gzip.compress(b'{"traceEvents":[' + kernel * 100_000 + b"{}]}"), "it")


def test_long_names_are_cut() -> None:
    trace = kineto.read(json.dumps([event(1, "x" * 1_000_000)]).encode(), "it")
    assert len(trace.ops.text(0)) == 4096


@pytest.mark.parametrize(("ts", "dur"), [(9e15, 9e15), (4.4e15, 4.6e15), (-9e15, 1), (1e300, 1), (1, 1e300)])
def test_times_that_no_clock_has(ts: float, dur: float) -> None:
    with pytest.raises(InputError, match="times that are no times"):
        kineto.read(json.dumps([{**event(1), "ts": ts, "dur": dur}]).encode(), "it")


def test_arguments_are_read_in_part_where_a_number_is_none() -> None:
    wrong = {"Sequence number": "x", "External id": 2.0, "Fwd thread id": True}
    content = trace_of([event(1, **wrong)])
    assert kineto.read(content, "it").ops.args[0].dims == [[2, 1], []]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert len(kineto.read(b"\xef\xbb\xbf" + trace_of([event(1)]), "it").ops) == 1


def test_a_long_broken_event_costs_no_whole_ones() -> None:
    events = ",".join(json.dumps(event(number)) for number in range(200))
    broken = '{"name":"z","args":{"l":[' + '{"q":1},' * 40 + '{"q'
    assert len(kineto.read(f'{{"traceEvents":[{events},{broken}'.encode(), "it").ops) == 200


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec", reason="fsspec opens URLs")
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/", recursive=True)


def test_a_url_is_read(memory: Any) -> None:
    memory.pipe("/runs/rank0.json", trace_of([event(1)]))
    assert len(Recording.load("memory://runs/rank0.json").trace.ops) == 1
    with pytest.raises(InputError, match="does not exist"):
        Recording.load("memory://runs/rank1.json")
    with pytest.raises(InputError, match="can't be read"):
        Recording.load("nothing://runs/rank1.json")


@pytest.mark.parametrize(
    ("begin", "advice"),
    [(b"PK\x03\x04", "zip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x80\x04\x95abc", "pickle")],
    ids=["zip", "zstd", "pickle"],
)
def test_other_files_are_named(begin: bytes, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(begin + bytes(100))
    with pytest.raises(InputError, match=advice):
        load_trace(path)


def test_saving_a_long_trace_keeps_its_events_and_no_secret(in_pieces: None, tmp_path: Path) -> None:
    events = [event(number, NAMES[number % len(NAMES)]) for number in range(60)]
    file = {"host_name": "secret", "distributedInfo": {"rank": 3, "pg_config": "secret"}, "traceEvents": events}
    (tmp_path / "a.json").write_text(json.dumps(file | {"environment": {"TOKEN": "secret"}}))
    recording = Recording.load(tmp_path / "a.json")
    assert recording.trace.rank == 3
    recording.save(tmp_path / "b.json.gz")
    text_of = gzip.decompress((tmp_path / "b.json.gz").read_bytes())
    assert b"secret" not in text_of
    assert json.loads(text_of) == {"traceEvents": events, "distributedInfo": {"rank": 3}}
    assert summary(load_trace(tmp_path / "b.json.gz")) == summary(recording.trace)
