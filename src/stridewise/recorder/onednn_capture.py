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
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from stridewise.recorder.c_stdout import StdoutSink, Unavailable, header_lines
from stridewise.recording import onednn

LIMIT_BYTES = 1 << 28
"""At this much text (a million primitives) verbose mode goes off: the text lies in memory."""

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
        except (Unavailable, OSError) as error:
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
_retired: "list[StdoutSink]" = []
_header = b""  # oneDNN prints it once a process; later captures get it from here
_registered = False


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
            self.sink = StdoutSink()
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
        self.sink.owed = header_lines(printed)
        if not self.program_on:
            for variable in LEVEL_VARIABLES:
                if (setting := os.environ.get(variable, "")) not in RESTORABLE:
                    raise Unavailable(f"{variable}={setting} could not be restored afterwards")
            undo.callback(self._torch_set, 0)
            # oneDNN reads this once, before its first line; programs that print already keep their lines' form.
            with self.sink.environment(TIMESTAMP_VARIABLE, b"1"):
                if not self._torch_set(1):
                    raise Unavailable("oneDNN's verbose mode cannot be turned on")
                self._probe()
            self._level = 0
            printed = self.sink.captured(begin)
        probes = onednn.read(printed).records
        if not probes:
            raise Unavailable("oneDNN's verbose mode prints nothing that can be read")
        self.timestamps = probes[-1].start_ns is not None
        self.sink.forward(everything=False)

    def _probe(self) -> None:
        """Run the smallest primitive, out of sight of the program's modes."""
        import torch

        try:
            with _modes_off(torch):
                torch.zeros(1, dtype=torch.float32, device="cpu").to_mkldnn()
        except RuntimeError as error:
            raise Unavailable(f"oneDNN does not run here: {str(error).partition(chr(10))[0]}") from None
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
        _header = _header or header_lines(self.sink.captured(0, 1 << 16))
        # Other threads may be inside a primitive that prints when it ends, or be about to print through the FILE that
        # they have just looked up: wait for the one, and close the FILE later.
        alone = threading.active_count() == 1
        if not alone and not self.program_on:
            self.sink.wait_until_quiet()
        self.sink.restore(everything=self.program_on, release=alone)
        if not alone:
            _retired.append(self.sink)


def _torch_verbose() -> Any:
    import torch

    return torch._C._verbose


def _torch_set_verbose() -> Callable[[int], int]:
    """`mkldnn_set_verbose` of torch (tried on 2.13): the only way to oneDNN's level, which nothing can ask for."""
    try:
        import torch
    except ImportError:
        raise Unavailable("torch is not installed") from None
    function: Callable[[int], int] | None = getattr(getattr(torch._C, "_verbose", None), "mkldnn_set_verbose", None)
    if function is None or not torch.backends.mkldnn.is_available():
        raise Unavailable("this build of torch has no oneDNN")
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
