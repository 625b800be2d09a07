"""Captures what oneDNN's verbose mode prints in this process, and leaves the program's standard output alone.

oneDNN prints with C's `printf`, and Python, subprocesses and `os.write` never do. So while a capture runs, the C
variable `stdout` points to a `FILE` on a private memory file: file descriptor 1 is not touched, what is a terminal
stays one, and all that is not C's `printf` reaches it as before. Text that extensions print with `printf` lands in the
private file too; it is passed on, in its order, at every `poll()` and at the end.

What stays different, because oneDNN cannot undo it: its header is printed once a process, and its timestamps stay on
once they were on, so a program that turns verbose mode on *after* a capture finds no header and a field more. Its
`error` lines, on by default, are off after a capture, as they are after `torch.backends.mkldnn.verbose`. While a
capture runs, `input()` has no line editing. Text not yet passed on is lost when the process is killed.
"""

import atexit
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from stridewise.recording import onednn

LIMIT_BYTES = 1 << 28
"""At this much text (a million primitives) verbose mode goes off: the text lies in memory."""

QUIET_S, LONGEST_WAIT_S = 0.02, 0.2
"""How long `stop` waits, where there are other threads, for the primitives that those are inside of."""

TIMESTAMP_VARIABLE = b"ONEDNN_VERBOSE_TIMESTAMP"
LEVEL_VARIABLES = ("ONEDNN_VERBOSE", "DNNL_VERBOSE")
RESTORABLE = {"", "0", "1", "2", "none"}
"""Settings of those variables that `mkldnn_set_verbose` does not destroy or can bring back."""


class VerboseCapture:
    """Verbose mode on from `start` to `stop` (or inside `with`), its lines kept. Never raises where it cannot.

    Captures may overlap, in one thread or in several; each takes the whole process's lines, since no line names its
    thread. A forked child leaves the capture and prints as if there had been none.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.unavailable: str | None = None
        """Why nothing is captured; None while all is well. Set by `start`."""
        self.timestamps = False
        """Whether the lines carry epoch time. Not if the program had verbose mode on before, without them."""
        self.truncated = False
        """Whether the limit was reached, so that later lines are missing."""
        self._limit = limit_bytes
        self._session: _Session | None = None
        self._begin = 0
        self._text = b""

    def start(self) -> "VerboseCapture":
        """Begin. Runs a reorder of one element or two to see what is printed: start the profiler after this."""
        if self._session is not None:
            raise RuntimeError("this capture has been started already")
        try:
            self._session = _join(self)
        except (_Unavailable, OSError) as error:
            self.unavailable = str(error)
            return self
        self.timestamps = self._session.timestamps
        self._begin = self._session.sink.position()
        return self

    def stop(self) -> None:
        """End. The mode, the `FILE` and the environment are as they were; `position` and `take` keep working."""
        session, self._session = self._session, None
        if session is None:
            return
        with _lock:
            if session.alive:
                self._text = session.text(self._begin)
                _leave(session, self)

    def __enter__(self) -> "VerboseCapture":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def position(self) -> int:
        """Bytes captured so far: the lines that a call printed are `take()[before:after]`. One system call."""
        session = self._session
        if session is None or not session.alive:
            return len(self._text)
        if session.program_on:
            session.poll()  # the program wants to see its lines between its own output
        at = session.sink.position()
        if at > self._limit and not self.truncated:
            self.truncated = session.mute()
        return at

    def poll(self) -> None:
        """Pass on what extensions printed with C's `printf` since the last time."""
        if self._session is not None and self._session.alive:
            self._session.poll()

    def take(self) -> bytes:
        """Everything captured, at the offsets that `position` gave.

        It begins with oneDNN's header where that is known. What is not this capture's own (text of extensions, lines
        from before `start`) is line feeds, so that offsets stay what they were.
        """
        session = self._session
        return session.text(self._begin) if session is not None and session.alive else self._text


# ------------------------------------------------------------------------------------------------ one session a process

_lock = threading.RLock()
_current: "_Session | None" = None
_retired: "list[_StdoutSink]" = []
_header = b""  # oneDNN prints it once a process; later captures get it from here
_registered = False


class _Unavailable(Exception):
    pass


def _join(capture: VerboseCapture) -> "_Session":
    global _current, _registered
    with _lock:
        if not _registered:
            os.register_at_fork(before=_before_fork, after_in_parent=_lock.release, after_in_child=_after_in_child)
            atexit.register(_at_exit)
            _registered = True
        while _retired:
            _retired.pop().release()
        if _current is None:
            _current = _Session()
        _current.captures.append(capture)
        return _current


def _leave(session: "_Session", capture: VerboseCapture) -> None:
    global _current
    session.captures.remove(capture)
    if not session.captures:
        _current = None
        session.close()


def _at_exit() -> None:
    for capture in list(_current.captures) if _current is not None else []:
        capture.stop()


def _before_fork() -> None:
    _lock.acquire()
    if _current is not None:
        _current.poll()  # or the child would write the parent's buffered text a second time


def _after_in_child() -> None:
    global _current
    session, _current = _current, None
    try:
        if session is not None:
            session.close(in_child=True)
    finally:
        _lock.release()


class _Session:
    """Verbose mode turned on over a sink, by the first of the captures that overlap, for all of them."""

    def __init__(self) -> None:
        self.captures: list[VerboseCapture] = []
        self.alive = True
        self.timestamps = False
        self.program_on = False
        """Whether the program itself wants verbose lines on its standard output."""
        self._level: int | None = None  # what to go back to; None: never changed
        self._torch_set = _torch_set_verbose()
        with ExitStack() as undo:
            self.sink = _StdoutSink()
            undo.callback(self.sink.restore, release=True)
            self.sink.add(_header)
            self._turn_on(undo)
            self._watch_the_program()
            undo.pop_all()

    def _turn_on(self, undo: ExitStack) -> None:
        """Find out what the program has on already by what a primitive prints, and turn on the rest."""
        begin = self.sink.position()
        self._probe()
        printed = self.sink.captured(begin)
        self.program_on = b",exec," in printed
        # A header now is one that a program with some level on would have seen before its first line.
        self.sink.owed = _header_lines(printed)
        if not self.program_on:
            for variable in LEVEL_VARIABLES:
                if (setting := os.environ.get(variable, "")) not in RESTORABLE:
                    raise _Unavailable(f"{variable}={setting} could not be restored afterwards")
            undo.callback(self._torch_set, 0)
            # oneDNN reads this once, before its first line; programs that print already keep their lines' form.
            with self.sink.environment(TIMESTAMP_VARIABLE, b"1"):
                if not self._torch_set(1):
                    raise _Unavailable("oneDNN's verbose mode cannot be turned on")
                self._probe()
            self._level = 0
            printed = self.sink.captured(begin)
        probes = onednn.read(printed).records
        if not probes:
            raise _Unavailable("oneDNN's verbose mode prints nothing that can be read")
        self.timestamps = probes[-1].start_ns is not None
        self.sink.forward(everything=False)

    def _probe(self) -> None:
        """Run the smallest primitive, out of sight of the program's modes."""
        import torch

        try:
            with _modes_off(torch):
                torch.zeros(1, dtype=torch.float32, device="cpu").to_mkldnn()
        except RuntimeError as error:
            raise _Unavailable(f"oneDNN does not run here: {str(error).partition(chr(10))[0]}") from None
        self.sink.flush()

    def _watch_the_program(self) -> None:
        """See what level the program asks for in between, so that ours neither ends early nor outlives it."""

        def mkldnn_set_verbose(level: int) -> int:
            with _lock:
                if not self.alive:
                    return self._torch_set(level)
                self.poll()
                done = self._torch_set(max(level, 1))
                if done:
                    self.program_on, self._level = level > 0, level
                return done

        self._watcher = mkldnn_set_verbose
        _torch_verbose().mkldnn_set_verbose = mkldnn_set_verbose

    def poll(self) -> None:
        with _lock:
            if self.alive:
                self.sink.forward(everything=self.program_on)

    def mute(self) -> bool:
        with _lock:
            return self.alive and not self.program_on and bool(self._torch_set(0))

    def text(self, begin: int) -> bytes:
        with _lock:
            self.poll()
            return self.sink.text(begin)

    def close(self, in_child: bool = False) -> None:
        global _header
        module = _torch_verbose()
        if module.mkldnn_set_verbose is self._watcher:
            module.mkldnn_set_verbose = self._torch_set
        if self._level is not None:
            self._torch_set(self._level)
        self.alive = False
        if in_child:
            self.sink.abandon()
            return
        _header = _header or _header_lines(self.sink.captured(0, 1 << 16))
        # Other threads may be inside a primitive that prints when it ends, or be about to print through the FILE that
        # they have just looked up: wait for the one, and close the FILE later.
        alone = threading.active_count() == 1
        if not alone and not self.program_on:
            self.sink.wait_until_quiet()
        self.sink.restore(everything=self.program_on, release=alone)
        if not alone:
            _retired.append(self.sink)


def _header_lines(text: bytes, instead: bytes = b"") -> bytes:
    """Only oneDNN's header; `instead` stands for each byte of what else there is."""
    return b"".join(
        line if b"_verbose," in line and b",info," in line and line.endswith(b"\n") else instead * len(line)
        for line in text.splitlines(keepends=True)
    )


# ---------------------------------------------------------------------------------------------------- the C library


class _StdoutSink:
    """A `FILE` on a private file in place of C's `stdout`.

    glibc documents that the variable may be set, and `printf` looks at it each time; macOS has it as `__stdoutp`.
    musl has it in read-only memory, and Windows has no variable.
    """

    def __init__(self) -> None:
        try:
            self._c = libc = ctypes.CDLL(None)
            writable = sys.platform == "darwin" or hasattr(libc, "gnu_get_libc_version")
            name = "__stdoutp" if sys.platform == "darwin" else "stdout"
            self._variable = ctypes.c_void_p.in_dll(libc, name)
        except (OSError, TypeError, ValueError):
            writable = False
        if not writable:
            raise _Unavailable("the C library's standard output cannot be redirected: this needs glibc or macOS")
        for function in (libc.fflush, libc.fclose):
            function.argtypes = [ctypes.c_void_p]
        libc.fwrite.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
        libc.fwrite.restype = ctypes.c_size_t
        libc.fdopen.restype = ctypes.c_void_p
        libc.getenv.restype = ctypes.c_char_p
        self._fd = _private_file()
        self.owed = b""
        """What the program's standard output gets before the next line of oneDNN's, or at the end."""
        self._done = 0  # up to here everything was passed on that had to be
        self._hidden: list[tuple[int, int]] = []
        self._file: int | None = None
        try:
            own = os.dup(self._fd)  # the FILE closes its own
            self._file = libc.fdopen(own, b"w")
            if self._file is None:
                os.close(own)
                raise _Unavailable("the C library cannot open another file")
        finally:
            if self._file is None:
                os.close(self._fd)
        self._original = self._variable.value
        libc.fflush(self._original)
        self._variable.value = self._file

    def position(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR)  # the FILE shares the offset: what it has written

    def flush(self) -> None:
        self._c.fflush(self._file)

    def add(self, text: bytes) -> None:
        os.write(self._fd, text)
        self._done += len(text)

    def captured(self, begin: int, end: int = sys.maxsize) -> bytes:
        parts = []
        while part := os.pread(self._fd, min(end - begin, 1 << 24), begin):
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    def wait_until_quiet(self) -> None:
        before, deadline = -1, time.monotonic() + LONGEST_WAIT_S
        while (at := self.position()) != before and time.monotonic() < deadline:
            before = at
            time.sleep(QUIET_S)

    def forward(self, *, everything: bool, final: bool = False) -> None:
        """Write what is not oneDNN's, or everything, to the program's `stdout`."""
        self.flush()
        text = self.captured(self._done)
        segments, decided = _segments(text, final)
        for ours, begin, end in segments:
            if ours and everything:
                self._pay()
            if everything or not ours:
                self._show(text[begin:end])
            if not ours:
                self._hidden.append((self._done + begin, self._done + end))
        self._done += decided

    def text(self, begin: int) -> bytes:
        """All captured text; line feeds for what is not oneDNN's and for lines before `begin` other than the header."""
        text = bytearray(self.captured(0)[: self._done])
        for first, end in self._hidden:
            text[first:end] = b"\n" * (end - first)
        return _header_lines(bytes(text[:begin]), b"\n") + bytes(text[begin:])

    def restore(self, *, everything: bool = False, release: bool) -> None:
        """Give `stdout` back, unless somebody else has set it meanwhile: they may be holding ours, so it stays open."""
        theirs = self._variable.value != self._file
        if not theirs:
            self._variable.value = self._original
        self.forward(everything=everything, final=True)
        self._pay()
        if release and not theirs:
            self.release()

    def release(self) -> None:
        """Close the file."""
        if self._file and self._variable.value != self._file:
            self.forward(everything=False, final=True)
            self.abandon()

    def abandon(self) -> None:
        """Give `stdout` back and close the file, in a forked child, which has the parent's text in sight."""
        if self._variable.value == self._file:
            self._variable.value = self._original
        self._c.fclose(self._file)
        os.close(self._fd)
        self._file = None

    @contextmanager
    def environment(self, name: bytes, value: bytes) -> Iterator[None]:
        """Set a variable for C code only: `os.environ` and what Python hands to subprocesses stay as they are."""
        before = self._c.getenv(name)
        self._c.setenv(name, value, 1)
        try:
            yield
        finally:
            self._c.unsetenv(name) if before is None else self._c.setenv(name, before, 1)

    def _pay(self) -> None:
        owed, self.owed = self.owed, b""
        self._show(owed)

    def _show(self, text: bytes) -> None:
        if text:
            self._c.fwrite(text, 1, len(text), self._original)
            self._c.fflush(self._original)


def _segments(text: bytes, final: bool) -> tuple[list[tuple[bool, int, int]], int]:
    """Cut text into oneDNN's lines (True) and the rest, neighbours joined, and say how far that is certain.

    Between two polls a line, or a marker, may be there in part only; at the end, what might have been a marker is none.
    """
    segments: list[tuple[bool, int, int]] = []

    def add(ours: bool, begin: int, end: int) -> None:
        if segments and segments[-1][0] == ours:
            segments[-1] = (ours, segments[-1][1], end)
        elif end > begin:
            segments.append((ours, begin, end))

    at = 0
    while at < len(text):
        line_end = text.find(b"\n", at) + 1
        end = line_end or len(text)
        found = onednn.MARKER.search(text, at, end)
        begin = found.start() if found else end
        if not line_end and (found or not final):
            if not found:
                begin -= next((n for n in range(min(15, end - at), 0, -1) if _may_begin_marker(text[end - n : end])), 0)
            add(False, at, begin)
            return segments, begin
        add(False, at, begin)
        add(True, begin, end)
        at = end
    return segments, at


def _may_begin_marker(text: bytes) -> bool:
    return any(marker.startswith(text) for marker in (b"onednn_verbose,", b"dnnl_verbose,", b"mkldnn_verbose,"))


def _private_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stridewise-onednn")
    with tempfile.TemporaryFile() as file:  # has no name, so nothing stays behind
        return os.dup(file.fileno())


def _torch_verbose() -> Any:
    import torch

    return torch._C._verbose


def _torch_set_verbose() -> Callable[[int], int]:
    """`mkldnn_set_verbose` of torch (tried on 2.13): the only way to oneDNN's level, which nothing can ask for."""
    try:
        import torch
    except ImportError:
        raise _Unavailable("torch is not installed") from None
    function: Callable[[int], int] | None = getattr(getattr(torch._C, "_verbose", None), "mkldnn_set_verbose", None)
    if function is None or not torch.backends.mkldnn.is_available():
        raise _Unavailable("this build of torch has no oneDNN")
    return function


@contextmanager
def _modes_off(torch: Any) -> Iterator[None]:
    """Without the program's function and dispatch modes (private names, tried on torch 2.13; left on where missing)."""
    with ExitStack() as stack:
        with suppress(ImportError, AttributeError):
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())
        with suppress(AttributeError):
            off: AbstractContextManager[Any] = torch._C.DisableTorchFunction()
            stack.enter_context(off)
        yield
