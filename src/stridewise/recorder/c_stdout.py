"""C's `stdout`, turned to a private file for a while: what `printf` writes lands there, and nothing else does."""

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from stridewise.recording import onednn

QUIET_S, LONGEST_WAIT_S = 0.02, 0.2
"""How long `stop` waits, where there are other threads, for the primitives that those are inside of."""


class Unavailable(Exception):
    """Why there is nothing to capture with."""


def header_lines(text: bytes, instead: bytes = b"") -> bytes:
    """Only oneDNN's header; `instead` stands for each byte of what else there is."""
    return b"".join(
        line if b"_verbose," in line and b",info," in line and line.endswith(b"\n") else instead * len(line)
        for line in text.splitlines(keepends=True)
    )


class StdoutSink:
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
            raise Unavailable("the C library's standard output cannot be redirected: this needs glibc or macOS")
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
                raise Unavailable("the C library cannot open another file")
        finally:
            if self._file is None:
                os.close(self._fd)
        self._original = self._variable.value
        libc.fflush(self._original)
        self._variable.value = self._file

    def position(self) -> int:
        """Bytes written so far."""
        return os.lseek(self._fd, 0, os.SEEK_CUR)  # the FILE shares the offset: what it has written

    def flush(self) -> None:
        """Bring what the C library holds back into the file."""
        self._c.fflush(self._file)

    def add(self, text: bytes) -> None:
        """Write text that counts as passed on."""
        os.write(self._fd, text)
        self._done += len(text)

    def captured(self, begin: int, end: int = sys.maxsize) -> bytes:
        """What lies between two positions."""
        parts = []
        while part := os.pread(self._fd, min(end - begin, 1 << 24), begin):
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    def wait_until_quiet(self) -> None:
        """Return when nothing has been written for a moment."""
        before, deadline = -1, time.monotonic() + LONGEST_WAIT_S
        while (at := self.position()) != before and time.monotonic() < deadline:
            before = at
            time.sleep(QUIET_S)

    def forward(self, *, everything: bool, final: bool = False) -> None:
        """Write what is not oneDNN's, or everything, to the program's `stdout`."""
        self.flush()
        text = self.captured(self._done)
        segments, decided = segments_of(text, final)
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
        return header_lines(bytes(text[:begin]), b"\n") + bytes(text[begin:])

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


def segments_of(text: bytes, final: bool) -> tuple[list[tuple[bool, int, int]], int]:
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
