"""Capturing oneDNN's verbose lines: nothing of the program's own output is lost, changed, moved or kept waiting."""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from torch.profiler import profile

import stridewise
from stridewise.recorder.c_stdout import segments_of
from stridewise.recorder.onednn_capture import VerboseCapture
from stridewise.recording import onednn

SOURCE = str(Path(stridewise.__file__).parent.parent)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not torch.backends.mkldnn.is_available(),
    reason="needs Linux and a torch with oneDNN",
)

# Stands before each program that runs on its own. CAPTURE=0 is the same program without a capture.
PRELUDE = """
import ctypes, os, subprocess, sys
import torch
from stridewise.recording import onednn
from stridewise.recorder.onednn_capture import VerboseCapture

torch.set_num_threads(1)
libc = ctypes.CDLL(None)
capture = VerboseCapture()
if os.environ["CAPTURE"] == "0":
    capture.start = capture.stop = capture.poll = capture.position = lambda: None
convolution, inputs = torch.nn.Conv2d(16, 16, 3).eval().requires_grad_(False), torch.randn(2, 16, 12, 12)

def ran(text):
    return [getattr(record, "primitive", "reorder") for record in onednn.read(text).records]
"""
ONE_CALL = ["reorder", "reorder", "convolution", "reorder"]


def start(program: str, *, capture: bool = True, stdout: int = subprocess.PIPE, **more: str) -> subprocess.Popen[bytes]:
    unset = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "ONEDNN_VERBOSE_TIMESTAMP")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": SOURCE, "CAPTURE": str(int(capture)), **more}
    command = [sys.executable, "-c", PRELUDE + program]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.PIPE, env=environment)


def output(process: subprocess.Popen[bytes]) -> bytes:
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error.decode()
    return out


@pytest.fixture
def convolution():
    layer, inputs = torch.nn.Conv2d(16, 16, 3).eval().requires_grad_(False), torch.randn(2, 16, 12, 12)
    return lambda: layer(inputs)


def ran(text: bytes) -> list[str]:
    return [getattr(record, "primitive", "reorder") for record in onednn.read(text).records]


def c_stdout() -> int | None:
    return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout").value


def descriptors() -> set[str]:
    return {f"{name} {os.readlink(f'/proc/self/fd/{name}')}" for name in os.listdir("/proc/self/fd") if open_(name)}


def open_(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


# ------------------------------------------------------------------------------------------------- the program's stdout

EVERY_WAY = """
def everything(tag):
    print("print", tag)
    sys.stdout.write("write without end ")
    sys.stdout.flush()
    os.write(1, b"os.write\\n")
    subprocess.run(["echo", "echo"], check=True)
    subprocess.run([sys.executable, "-c", "print('python')"], check=True)
    for text in (b"printf %d\\n", b"no end, ", b"onednn_verb", b"ose\\n", b"\\xff\\xfe \\x1b[1m\\n", b"\\n\\n"):
        libc.printf(text, 7)
        libc.fflush(None)
        capture.poll()
    libc.puts(b"x" * 300_000)
    libc.putchar(ord("y"))
    convolution(inputs)
    libc.puts(b"z, on the line that y began")
    libc.fflush(None)
    capture.position(), capture.poll()
    print("printed last")
    sys.stdout.flush()

everything("before")
capture.start()
everything("inside")
capture.stop()
everything("after")
if os.environ["CAPTURE"] == "1":
    assert ran(capture.take()) == ["reorder", "reorder", "convolution", "reorder"], capture.unavailable
"""


def test_every_way_to_print_comes_out_as_without_a_capture():
    processes = [start(EVERY_WAY, capture=capture) for capture in (False, True)]
    plain, captured = map(output, processes)
    assert plain.count(b"os.write") == 3
    assert b"onednn_verbose,v1" not in plain
    assert captured == plain


TERMINAL = """
print("a terminal" if sys.stdout.isatty() and os.isatty(1) else "no terminal")
capture.start()
print("a terminal" if sys.stdout.isatty() and os.isatty(1) else "no terminal")
convolution(inputs)
os.write(1, b"os.write\\n")
subprocess.run([sys.executable, "-c", "import sys; print('child', sys.stdout.isatty())"], check=True)
libc.printf(b"printf\\n")
capture.poll()
sys.stdin.readline()  # all of the above has to arrive before this is answered
capture.stop()
print(ran(capture.take()))
"""


def test_a_terminal_stays_one_and_nothing_waits_for_the_end():
    ours, theirs = os.openpty()
    process = start(TERMINAL, stdout=theirs)
    os.close(theirs)
    before_the_end = ["a terminal", "a terminal", "os.write", "child True", "printf"]
    with os.fdopen(ours, "rb") as terminal:
        assert [terminal.readline().decode().rstrip() for _ in before_the_end] == before_the_end
        assert process.stdin is not None
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        assert terminal.readline().decode().rstrip() == str(ONE_CALL)
        _, error = process.communicate(timeout=60)  # with the terminal still open
    assert process.returncode == 0, error.decode()


VERBOSE_ITSELF = """
capture.start()
print("first", flush=True)
convolution(inputs)
capture.position()
print("second", flush=True)
libc.printf(b"printf\\n")
libc.fflush(None)
capture.poll()
convolution(inputs)
capture.stop()
convolution(inputs)
if os.environ["CAPTURE"] == "1":
    assert ran(capture.take()) == 2 * ["reorder", "reorder", "convolution", "reorder"], capture.unavailable
"""


@pytest.mark.parametrize("level", ["1", "2,dispatch"])
def test_a_program_with_verbose_mode_on_still_sees_its_lines(level):
    processes = [start(VERBOSE_ITSELF, capture=capture, ONEDNN_VERBOSE=level) for capture in (False, True)]
    # With a capture, a primitive has been created once already.
    plain, captured = (re.sub(rb",\d[\d.e-]*\n|create:\w+", b"", output(process)) for process in processes)
    assert plain.count(b"exec,cpu,convolution") == 3
    assert captured == plain


def test_a_level_that_could_not_be_restored_is_left_alone():
    program = "capture.start(); print(capture.unavailable, flush=True); capture.stop(); convolution(inputs)"
    text = output(start(program, ONEDNN_VERBOSE="dispatch")).decode()
    assert "ONEDNN_VERBOSE=dispatch could not be restored afterwards" in text
    assert text.count("template:") == 2  # the header, which oneDNN prints once, before the first line
    assert "create:dispatch,convolution" in text
    assert ",exec," not in text


VERBOSE_MEANWHILE = """
from torch.backends import mkldnn
capture.start()
convolution(inputs)
with mkldnn.verbose(mkldnn.VERBOSE_ON):
    print("in", flush=True)
    convolution(inputs)
print("out", flush=True)
convolution(inputs)
capture.stop()
print("stopped", flush=True)
convolution(inputs)
with mkldnn.verbose(mkldnn.VERBOSE_ON):
    convolution(inputs)
assert len(ran(capture.take())) == 12, capture.unavailable
"""


def test_a_program_that_turns_verbose_mode_on_and_off_inside():
    text = output(start(VERBOSE_MEANWHILE)).decode()
    words = [ran(line.encode())[0] if "_verbose," in line else line for line in text.splitlines()]
    assert words == ["in", *ONE_CALL, "out", "stopped", *ONE_CALL]


FORK_AND_EXIT = """
capture.start()
convolution(inputs)
at = capture.position()
libc.printf(b"before the fork\\n")
child = os.fork()
if child == 0:
    convolution(inputs)
    libc.printf(b"in the child\\n")
    libc.fflush(None)
    again = VerboseCapture().start()
    convolution(inputs)
    again.stop()
    os._exit(ran(again.take()) != ["reorder", "reorder", "convolution", "reorder"] or capture.position() != 0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
convolution(inputs)
assert ran(capture.take()) == 2 * ["reorder", "reorder", "convolution", "reorder"], capture.unavailable
assert ran(capture.take()[at:]) == ["reorder", "reorder", "convolution", "reorder"]
libc.printf(b"at the end, never stopped\\n")
"""


def test_a_forked_child_leaves_the_capture_and_exit_passes_everything_on():
    assert output(start(FORK_AND_EXIT)) == b"before the fork\nin the child\nat the end, never stopped\n"


@pytest.mark.parametrize(
    "text", [b"abc\nonednn_verbose,1\ndef\n", b"xdnnl_verbose,v1\nab", b"onednn_onednn_verbose,\n", b""]
)
@pytest.mark.parametrize("step", [1, 2, 5, 100])
def test_text_in_pieces_is_cut_as_in_one(text, step):
    lines = {True: b"", False: b""}
    pending = b""
    for at in range(0, len(text) + step, step):
        final = at >= len(text)
        pending += text[at : at + step]
        segments, decided = segments_of(pending, final)
        for ours, begin, end in segments:
            lines[ours] += pending[begin:end]
        pending = pending[decided:]
    assert pending == b""
    assert lines[True] == b"".join(re.findall(rb"(?:onednn|dnnl|mkldnn)_verbose,.*\n", text))
    assert lines[False] == re.sub(rb"(?:onednn|dnnl|mkldnn)_verbose,.*\n", b"", text)


# ------------------------------------------------------------------------------------------------ positions and times


def test_positions_tell_the_lines_of_each_call(convolution):
    with VerboseCapture() as capture:
        before = capture.position()
        convolution()
        between = capture.position()
        ctypes.CDLL(None).printf(b"not oneDNN's\n")
        capture.poll()
        convolution()
        after = capture.position()
        text = capture.take()
    assert capture.unavailable is None
    assert before < between < after == capture.position()
    assert ran(text[:before]) == []
    assert b"template:" in text[:before]
    assert ran(text[before:between]) == ran(text[between:after]) == ONE_CALL
    assert b"not oneDNN's" not in text
    assert capture.take() == text


def test_lines_lie_inside_the_profiler_s_ops(convolution, tmp_path):
    with VerboseCapture() as capture:
        convolution()
        begin = capture.position()
        with profile() as profiler:
            for _ in range(20):
                convolution()
    if not capture.timestamps:
        pytest.skip("oneDNN printed before this test, without timestamps")
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    base = trace["baseTimeNanoseconds"]
    ops = [
        (base + round(event["ts"] * 1000), base + round((event["ts"] + event["dur"]) * 1000))
        for event in trace["traceEvents"]
        if event.get("name") == "aten::mkldnn_convolution"
    ]
    records = [record for record in onednn.read(capture.take()).records if record.offset >= begin]
    assert (len(ops), len(records)) == (20, 80)
    tolerance = 2_000  # stamp and duration are whole microseconds
    for at, (first, last) in enumerate(sorted(ops)):
        for record in records[4 * at : 4 * at + 4]:
            assert record.start_ns is not None
            assert first - tolerance <= record.start_ns <= record.start_ns + record.duration_ns <= last + tolerance


def test_at_the_limit_it_goes_quiet(convolution):
    with VerboseCapture(limit_bytes=2000) as capture:
        for _ in range(10):
            convolution()
            capture.position()
    assert capture.truncated
    assert 1 <= ran(capture.take()).count("convolution") < 10


# ---------------------------------------------------------------------------------------------- nothing stays behind


def test_everything_is_put_back(convolution, capfd):
    convolution()
    with VerboseCapture():
        pass  # what the first one loads
    before = (c_stdout(), descriptors(), dict(os.environ), torch._C._verbose.mkldnn_set_verbose)
    for _ in range(3):
        with VerboseCapture() as capture:
            assert c_stdout() != before[0]
            convolution()
        assert ran(capture.take()) == ONE_CALL
    assert (c_stdout(), descriptors(), dict(os.environ), torch._C._verbose.mkldnn_set_verbose) == before
    convolution()
    assert capfd.readouterr().out == ""


def test_the_environment_of_c_code_is_put_back():
    """`getenv` and what subprocesses inherit; run apart, since oneDNN reads its variable once a process."""
    program = """
libc.getenv.restype = ctypes.c_char_p
for value in (None, b"0"):
    libc.setenv(b"ONEDNN_VERBOSE_TIMESTAMP", value, 1) if value else None
    capture = VerboseCapture().start()
    assert capture.timestamps
    assert libc.getenv(b"ONEDNN_VERBOSE_TIMESTAMP") == value, value
    subprocess.run(["env"])
    capture.stop()
"""
    assert [line for line in output(start(program)).splitlines() if b"VERBOSE" in line] == [
        b"ONEDNN_VERBOSE_TIMESTAMP=0"
    ]


def test_an_error_inside(convolution):
    before = (c_stdout(), descriptors())
    capture = VerboseCapture()

    def fail() -> None:
        with capture:
            convolution()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (c_stdout(), descriptors()) == before
    assert ran(capture.take()) == ONE_CALL


def test_without_memory_files_it_uses_a_file_without_a_name(convolution, monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = descriptors()
    with VerboseCapture() as capture:
        convolution()
        assert list(tmp_path.iterdir()) == []
    assert ran(capture.take()) == ONE_CALL
    assert descriptors() == before


@pytest.mark.parametrize("inner_ends_first", [True, False])
def test_captures_that_overlap(convolution, inner_ends_first):
    before = (c_stdout(), descriptors())
    outer = VerboseCapture().start()
    convolution()
    inner = VerboseCapture().start()
    convolution()
    first, second = (inner, outer) if inner_ends_first else (outer, inner)
    first.stop()
    convolution()
    second.stop()
    second.stop()
    assert len(ran(first.take())) == len(ONE_CALL) * (1 if inner_ends_first else 2)
    assert len(ran(second.take())) == len(ONE_CALL) * (3 if inner_ends_first else 2)
    assert (c_stdout(), descriptors()) == before


def test_threads(convolution, capfd):
    """Lines of several threads stay whole, and text printed while holding the interpreter's lock blocks nobody."""
    before = descriptors()
    printf = ctypes.PyDLL(None).printf
    with VerboseCapture() as capture:

        def work() -> None:
            for _ in range(25):
                convolution()
                printf(b"from a thread\n")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            capture.position()
            capture.poll()
    log = onednn.read(capture.take())
    assert log.skipped == 0
    assert sorted(ran(capture.take())) == sorted(100 * ONE_CALL)
    assert capfd.readouterr().out == 100 * "from a thread\n"
    VerboseCapture().start().stop()
    assert descriptors() == before


def test_another_thread_still_running_at_the_end(convolution):
    before = descriptors()
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            convolution()

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        with VerboseCapture() as capture:
            convolution()
        assert onednn.read(capture.take()).skipped == 0
    done.set()
    thread.join()
    VerboseCapture().start().stop()  # closes what could not be closed before
    assert descriptors() == before


def test_the_probe_stays_out_of_the_program_s_modes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Functions(), Dispatch(), torch.device("meta"):
        seen.clear()  # what entering a device did
        with VerboseCapture() as capture:
            pass
    assert capture.unavailable is None
    assert seen == []


# ---------------------------------------------------------------------------------------------------- where it cannot


def unavailable(convolution) -> str:
    before = (c_stdout(), descriptors())
    with VerboseCapture() as capture:
        convolution()
        assert capture.position() == 0
        capture.poll()
    assert capture.take() == b""
    assert (c_stdout(), descriptors()) == before
    assert capture.unavailable is not None
    return capture.unavailable


def test_a_torch_without_onednn(convolution, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert unavailable(convolution) == "this build of torch has no oneDNN"


def test_a_torch_without_the_switch(convolution, monkeypatch):
    monkeypatch.delattr(torch._C._verbose, "mkldnn_set_verbose")
    assert unavailable(convolution) == "this build of torch has no oneDNN"


def test_a_onednn_that_prints_nothing(convolution, monkeypatch):
    monkeypatch.setattr(torch._C._verbose, "mkldnn_set_verbose", lambda level: 1)
    assert unavailable(convolution) == "oneDNN's verbose mode prints nothing that can be read"


def test_a_c_library_that_keeps_its_stdout_in_read_only_memory(convolution, monkeypatch):
    real = ctypes.CDLL(None)

    class Musl:
        stdout = ctypes.c_void_p.in_dll(real, "stdout")
        _handle = real._handle

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Musl())
    with VerboseCapture() as capture:
        pass
    assert capture.unavailable == "the C library's standard output cannot be redirected: this needs glibc or macOS"


def test_no_descriptors_left(convolution, monkeypatch):
    def full(name: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", full)
    assert "Too many open files" in unavailable(convolution)


def test_starting_twice_is_a_mistake():
    with VerboseCapture() as capture, pytest.raises(RuntimeError, match="started already"):
        capture.start()
