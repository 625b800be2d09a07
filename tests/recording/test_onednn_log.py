"""Logs of oneDNN as recordings: what is read from them, what they cost in memory, and what is not said of them."""

import gzip
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise
from stridewise.errors import InputError
from stridewise.recording import onednn
from stridewise.recording.formats import load_trace
from stridewise.recording.onednn_log import Runs, is_log, read_text
from stridewise.recording.text import Text

HEADER = (
    "onednn_verbose,v1,info,oneDNN v3.7.1 (commit 8d263e6)\n"
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,"
    "attributes,auxiliary,problem_desc,exec_time\n"
)
REORDER = (
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:blk,undef,src:f32::blocked:abcd::f0 "
    "dst:f32::blocked:aBcd16b::f0,attr-scratchpad:user,,2x16x32x32,1.5\n"
)
CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,"
    "src:f32::blocked:acdb::f0 wei:f32::blocked:Acdb16a::f0 bia:undef::undef::: dst:f32::blocked:acdb::f0,"
    "attr-scratchpad:user,alg:convolution_direct,mb2_ic16oc16_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1,4.5\n"
)
OLD = (
    "dnnl_verbose,exec,cpu,reorder,simple:any,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:acdb:f0,,,2x16x8x8,2.0\n"
)
OLDEST = "mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_nchw out:f32_nChw16c,num:1,2x16x32x32,2.0\n"


def stamped(line: str, at_ms: float) -> str:
    return line.replace("onednn_verbose,v1,", f"onednn_verbose,v1,{at_ms:.3f},")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("epoch 0\n" + HEADER + f"loss 0.3 {REORDER}" + CONVOLUTION + "done, really\n")
    return path


# -- what is read ------------------------------------------------------------------------------------------------------


def test_what_ran_is_kept_and_only_reorders_are_copies(log: Path) -> None:
    trace = load_trace(log)
    reorder, convolution = trace.library
    assert isinstance(reorder, onednn.Reorder)
    assert isinstance(convolution, onednn.Primitive)
    assert convolution.implementation == "brgconv:avx512_core"
    assert not len(trace.ops)
    (copy,) = stridewise.analyze(log).copies
    assert (copy.kind, copy.sizes, copy.duration_ns) == ("library", (2, 16, 32, 32), 1_500_000)
    assert copy.site is None or copy.site.file is None


def test_shares_are_of_the_time_in_onednn_where_there_is_no_other(log: Path) -> None:
    totals = stridewise.analyze(log).totals
    assert (totals.steps, totals.steps_found, totals.step_ns) == (1, False, None)
    assert totals.share == 0.25
    assert totals.share_of == "time in oneDNN"
    assert totals.copies == 1


def test_shares_are_of_wall_time_where_lines_have_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    at = 1_750_000_000_000.0
    path.write_text(HEADER + stamped(REORDER, at) + stamped(CONVOLUTION, at + 10.5))
    totals = stridewise.analyze(path).totals
    assert totals.share_of == "step time"
    assert totals.step_ns == 15_000_000
    assert totals.share == 0.1
    assert load_trace(path).base_ns == 1_750_000_000_000_000_000


def test_if_only_some_lines_have_times_none_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(HEADER + stamped(REORDER, 1_750_000_000_000.0) + CONVOLUTION)
    trace = load_trace(path)
    assert not trace.has_wall_time
    assert [run.start_ns for run in trace.library] == [0, 1_500_000]


@pytest.mark.parametrize("line", [REORDER, OLD, OLDEST])
def test_every_generation_of_lines(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log"
    path.write_text(line * 3)
    assert len(stridewise.analyze(path).copies) == 3


def test_a_report_of_a_log_can_be_shown(log: Path) -> None:
    report = stridewise.analyze(log)
    text = str(report)
    assert "time in oneDNN" in text
    assert "Nothing was recorded" not in text
    assert report.to_json()


def test_a_log_without_reorders_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(CONVOLUTION * 4)
    report = stridewise.analyze(path)
    assert report.ok
    assert report.totals.copies == 0


def test_zipped_and_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    lines = "".join(REORDER.replace("1.5", str(number)) for number in range(2_000))
    path.write_bytes(gzip.compress(lines.encode()))
    assert len(load_trace(path).library) == 2_000
    path.write_bytes(gzip.compress(lines.encode())[:-200])
    trace = load_trace(path)
    assert 0 < len(trace.library) < 2_000
    assert any("gzip ends too early" in note for note in trace.notes)


def test_garbled_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(REORDER + REORDER[:90] + "\n" + CONVOLUTION)
    assert "Lines of oneDNN that were cut off or garbled, and are not counted: 1." in load_trace(path).notes


def test_a_log_of_a_real_program(tmp_path: Path) -> None:
    program = "import torch\nwith torch.no_grad(): torch.nn.Conv2d(16, 16, 3)(torch.randn(2, 16, 32, 32))\n"
    for stamps in ("0", "1"):
        environment = {**os.environ, "ONEDNN_VERBOSE": "1", "ONEDNN_VERBOSE_TIMESTAMP": stamps}
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        path = tmp_path / f"{stamps}.log"
        path.write_bytes(ran.stdout)
        trace = load_trace(path)
        assert any(run.primitive == "convolution" for run in trace.library if isinstance(run, onednn.Primitive))
        assert trace.has_wall_time == (stamps == "1")
        assert 0 < (stridewise.analyze(path).totals.share or 0) < 1


# -- telling them from other files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "is_one"),
    [
        (b"onednn_verbose,v1,info\n", True),
        (b"[rank0]: onednn_verbose,v1,exec\n", True),
        (b'{"loss": 3}\nonednn_verbose,v1,exec\n', True),
        (b'{"traceEvents": [], "stridewise": {"library_log": "onednn_verbose,v1,exec\\nonednn_verbose,"}}', False),
        (b'[{"name": "onednn_verbose,v1"}]', False),
        (b'{\n "traceEvents": [ {"name":\n"onednn_verbose,v1"}]}', False),
        (b"epoch 1\n", False),
        (b"", False),
    ],
)
def test_what_a_log_begins_with(begun: bytes, is_one: bool) -> None:
    assert is_log(begun) is is_one


def test_a_recording_with_such_lines_stays_a_recording(tmp_path: Path) -> None:
    import torch

    convolution, x = torch.nn.Conv2d(16, 16, 3), torch.randn(2, 16, 32, 32)
    with stridewise.record(library_copies=True) as recording, torch.no_grad():
        convolution(x)
    recording.save(tmp_path / "recording.json")
    trace = load_trace(tmp_path / "recording.json")
    assert trace.log is not None
    assert any(run.primitive == "convolution" for run in trace.library if isinstance(run, onednn.Primitive))


def test_a_log_in_which_nothing_ran(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(HEADER)
    with pytest.raises(InputError, match="no primitive ran") as failure:
        load_trace(path)
    assert str(failure.value).count("\n") <= 2


# -- size --------------------------------------------------------------------------------------------------------------


class Endless:
    """A stream of lines that never stand in memory together."""

    def __init__(self, parts: itertools.chain[bytes]) -> None:
        self.parts = parts

    def read(self, size: int) -> bytes:
        return next(self.parts, b"")


def test_a_long_log_is_read_in_pieces() -> None:
    part = (REORDER + "x" * 1_000 + "\n" + CONVOLUTION).encode() * 500
    stream = Endless(itertools.chain(itertools.repeat(part, 40)))
    trace = read_text(Text(stream, "log"))  # type: ignore[arg-type]
    assert len(trace.library) == 40_000
    assert trace.library[-1].offset == len(part) * 40 - len(CONVOLUTION)
    assert isinstance(trace.library, Runs)
    assert len(trace.library._records) == 2


def test_a_line_without_an_end_takes_no_memory() -> None:
    stream = Endless(itertools.chain([REORDER.encode()], itertools.repeat(b"y" * 1_000_000, 60), [b"\n", OLD.encode()]))
    trace = read_text(Text(stream, "log"))  # type: ignore[arg-type]
    assert len(trace.library) == 2


@given(
    st.lists(st.sampled_from([HEADER, REORDER, CONVOLUTION, OLD, "x\n", REORDER[:70]]), max_size=12),
    st.integers(1, 300),
)
def test_where_pieces_end_does_not_matter(lines: list[str], size: int) -> None:
    content = "".join(lines).encode()
    whole = onednn.read(content).records

    class Stream:
        at = 0

        def read(self, _: int) -> bytes:
            self.at += size
            return content[self.at - size : self.at]

    if not whole:
        with pytest.raises(InputError):
            read_text(Text(Stream(), "log"))  # type: ignore[arg-type]
        return
    trace = read_text(Text(Stream(), "log"))  # type: ignore[arg-type]
    assert [(run.offset, run.duration_ns) for run in trace.library] == [(run.offset, run.duration_ns) for run in whole]


def test_runs_give_back_what_they_were_given() -> None:
    records = [*onednn.read(HEADER + REORDER + CONVOLUTION + stamped(CONVOLUTION, 1_750_000_000_000.0)).records]
    runs = Runs()
    for record in records:
        runs.append(record)
    assert list(runs) == records
    assert runs[1:] == records[1:]
    assert runs[-1] == records[-1]
    with pytest.raises(IndexError):
        runs[3]
