"""`record()`: an ordinary profiler run, with the call log beside it."""

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import profile

from stridewise.errors import NestedRecording, RecordingError
from stridewise.recorder import private, tracebacks
from stridewise.recorder.autocast import AutocastRecorder
from stridewise.recorder.busy import busy_threads
from stridewise.recorder.calls import CallRecorder
from stridewise.recorder.collector import full_collections_wait
from stridewise.recorder.log import build_log
from stridewise.recorder.modules import ModuleRecorder
from stridewise.recorder.onednn_capture import VerboseCapture
from stridewise.recorder.opaque import opaque_regions
from stridewise.recorder.profiling import environment, export, start_profiler
from stridewise.recorder.scripted import scripted_calls_logged
from stridewise.recording.handle import Recording
from stridewise.recording.model import BEGIN_MARK, END_MARK, LAST_MARK, OPTIMIZER_MARK, STEP_MARK, CallLog, with_log
from stridewise.results import numbers

MAX_OPS = 200_000
"""The profiler keeps about 3 kB an operator and has no bound of its own."""
OPS_PER_CALL = 3
"""Operators, marks and backward nodes that one logged call stands for, about; the profiler can't be asked."""

_active: "Recorder | None" = None
step_listener: Callable[[], None] | None = None
"""Told of `step()` while nothing is recorded."""
_watching: "Recorder | None" = None
"""The recorder whose mode and hooks are in place: after `max_ops` they still are, though nothing is recorded."""
_inherited: "Recorder | None" = None
"""In a forked child: the parent's recorder, whose profiler is still on here."""
_lock = threading.Lock()


def record(*, library_copies: bool = False, max_ops: int = MAX_OPS) -> "Recorder":
    """Record what the body of a `with` block does with tensors; it yields the Recording, to use after the block.

    `library_copies` also records the copies inside oneDNN, whose verbose output slows the run. After about `max_ops`
    operators recording ends and the program goes on. Raises NestedRecording inside another recording or profiler.
    Nothing of the program is changed: its results, exceptions, output and memory are as without.
    """
    return Recorder(library_copies=library_copies, max_ops=max_ops, begins_step=True)


def step() -> None:
    """Say that a step of the program ends here: it overrides the steps that stridewise would find by itself."""
    recorder = _active
    if recorder is not None:
        recorder.end_step()
    elif step_listener is not None:
        step_listener()


def is_recording() -> bool:
    """Whether a recording is being made in this process."""
    return _active is not None


class Recorder:
    """Starts and stops one recording: a context manager, or `start` and `stop` by hand.

    `boundary` is told of what may tell steps apart: `step`; `optimizer` and which one; `root` and the module that is
    called from outside any; and `full` once `max_ops` is reached and recording has ended. With `leaves_out_busy` what
    threads do that are at work on something else when it begins is no part of the recording.
    """

    def __init__(
        self,
        *,
        library_copies: bool = False,
        max_ops: int = MAX_OPS,
        begins_step: bool = False,
        leaves_out_busy: bool = False,
        boundary: Callable[[str, object], None] | None = None,
    ) -> None:
        if max_ops < 1:
            raise RecordingError(f"max_ops is {max_ops}.", expected="Expected: a positive number of operators.")
        self.recording = Recording()
        self.recording.on_step = step
        self.warmup = 0
        self.limit: int | None = None
        self.module_step: str | None = None
        self.cut = False
        """Recording ended where the program did not want it to."""
        self.notes: list[str] = []
        self.running = False
        self.looks_for_waiting = True
        """Whether to look for profilers that only wait for their turn, which takes time. False where there are none."""
        self.collector_waits = False
        """Whether Python's full collections wait until the profiler has ended, unless the program asks for one."""
        self.full = False
        """`max_ops` was reached."""
        self._library_copies = library_copies
        self._max_ops = max_ops
        self._begins_step = begins_step
        self._leaves_out_busy = leaves_out_busy
        self._boundary = boundary
        self._optimizers: list[weakref.ref[Any]] = []
        self._profiling = contextlib.ExitStack()
        self._watch = contextlib.ExitStack()
        self._collector = contextlib.ExitStack()
        self._failure: Exception | None = None
        self._profiler: profile | None = None
        self._ending = threading.RLock()
        self._stopped = False
        self._in_child = False
        self.trace = b""
        self._library_log: bytes | None = None

    # -- start and stop --------------------------------------------------------------------------------------------

    def __enter__(self) -> Recording:
        self.start()
        return self.recording

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut = self.cut or value is not None
        try:
            self.stop()
        except Exception as error:
            if value is None:
                raise
            self.recording.fail(error)  # the program's own exception is what it has to see
        if value is not None:
            tracebacks.clean(value)

    def start(self) -> None:
        """Begin. Raises NestedRecording while a recording or another profiler runs: two at once crash the process."""
        global _active, _watching
        if _inherited is not None:
            _inherited._another_profiler_starts()
        if _active is not None and _active._boundary is not None:
            _active._another_profiler_starts()  # of a script that is run, and makes recordings itself
        with _lock:
            if _active is not None:
                raise NestedRecording(
                    "A recording is running already.", advice="End it before another starts; they can't be nested."
                )
            if private.profiler_is_on(waiting=self.looks_for_waiting):
                raise NestedRecording(
                    "Another profiler is running, and a second one would crash the process.",
                    advice="End it first, or hand its trace to `stridewise trace`.",
                )
            _active, before, _watching = self, _watching, self
        try:
            if before is not None:
                before.stop_watching()
            self._start()
        except BaseException:
            _active = None
            self.stop_watching()
            self._profiling.close()
            self._collector.close()
            raise

    def _start(self) -> None:
        self._thread = threading.get_ident()
        self._apart = busy_threads() if self._leaves_out_busy else []
        self.calls = calls = CallRecorder(max(1, self._max_ops // OPS_PER_CALL), self._reached_limit)
        self.modules = ModuleRecorder(calls, self._root_called)
        self.autocast = AutocastRecorder(calls)
        self._capture = VerboseCapture() if self._library_copies else None
        sites_on = calls.mark is not None
        if not sites_on:
            self.notes.append("This torch has no cheap annotations: copies are counted, but have no source lines.")
        stack = self._profiling
        if self.collector_waits:
            self._collector.enter_context(full_collections_wait())
        if self._capture is not None:  # before the profiler, since starting it runs a reorder
            stack.enter_context(self._capture)
            if self._capture.unavailable:
                self.notes.append(f"Copies inside oneDNN were not recorded: {self._capture.unavailable}.")
            else:
                calls.position = self._capture.position
        self._profiler = start_profiler(stack)
        stack.enter_context(private.before_profiler_starts(self._another_profiler_starts))
        if sites_on:
            self._start_watching(self._watch)
            if self._begins_step:
                self._mark(BEGIN_MARK)
        self.running = True

    def _start_watching(self, stack: contextlib.ExitStack) -> None:
        calls, modules = self.calls, self.modules
        stack.enter_context(modules.installed())
        stack.enter_context(self.autocast.watching())
        regions = stack.enter_context(opaque_regions(calls, modules, self._compiler_is_unknown))
        stack.enter_context(private.before_tensors_swap(self._tensors_swap))
        stack.enter_context(private.mode_during_backward(calls, lambda: calls.on and not calls.hidden))
        stack.enter_context(scripted_calls_logged(calls))
        handle = register_optimizer_step_post_hook(self._optimizer_stepped)
        stack.callback(handle.remove)
        if private.all_threads_config() is not None:  # else the profiler sees nothing of other threads
            stack.enter_context(private.mode_in_new_threads(calls, lambda: calls.on))
        if self.calls.ended:
            self.stop_watching()
            return
        private.push_mode(calls)
        stack.callback(private.remove_mode, calls)
        regions.enter_running()

    def _tensors_swap(self) -> None:
        """The program swaps two tensors, which must not have weak references: the profiler has some, and so have we."""
        if self.running:
            self.notes.append("The program swapped tensors, which a running profiler forbids: recording ended there.")
            self.end_profiling()
        self._forget_tensors()

    def _forget_tensors(self) -> None:
        self.calls.tensors.forget_all()
        self.modules.forget_names()

    def stop_watching(self) -> None:
        """Take the mode and every hook off. Threads that still have the mode lose it at their next call of torch."""
        global _watching
        self.calls.close()
        self.calls.ended = True
        self._watch.close()
        with _lock:
            if _watching is self:
                _watching = None

    def stop(self) -> None:
        """End, and hand what was recorded to the Recording. Ending twice does nothing.

        Raises RecordingError if what was recorded can't be had.
        """
        if self._stopped:
            return
        self._stopped = True
        try:
            self.end_profiling()
        finally:
            self.stop_watching()
        if self._in_child:
            self.recording.fail(RecordingError("The recording goes on in the process that this one was forked from."))
            return
        if not self.trace:
            raise RecordingError(f"The recording is lost: {self._failure or 'its end was interrupted'}.")
        if self.full and self.calls.unlogged:
            were = "call was" if self.calls.unlogged == 1 else "calls were"
            self.notes.append(f"{self.calls.unlogged:,} later {were} seen and not recorded.")
        trace, self.trace = self.trace, b""
        self.recording.finish(with_log(trace, self._log()))
        self._forget_tensors()

    def end_profiling(self, *, watch: bool = False) -> None:
        """Stop the profiler and the log; the program goes on, and `stop` is still to come.

        With `watch` the mode and the hooks stay in place.
        """
        with self._ending:  # another thread that comes here meanwhile waits for what it wants
            if self.running:
                self.running = False
                self._end_profiling(watch)

    def _end_profiling(self, watch: bool) -> None:
        global _active
        try:
            self.calls.close()
            self.modules.leave_all()
            self.module_names = self.modules.learn_names()
            if self._capture is not None and not self._capture.unavailable:
                self._library_log = self._capture.take()
            if not watch:
                self.stop_watching()
            with self.calls.others_paused():
                self.calls.profiled = False
                self._profiling.close()
            assert self._profiler is not None
            self.trace = export(self._profiler)
        except Exception as error:  # a full disk: the program has nothing to do with it, `stop` will say so
            self._failure = error
        finally:
            self._profiler = None
            self._collector.close()
            with _lock:
                _active = None

    # -- what happens while it runs --------------------------------------------------------------------------------

    def end_step(self) -> None:
        """The program says that a step ends."""
        if self.running and self.calls.on:
            self._mark(STEP_MARK)
            self._poll()
            if self._boundary is not None:
                self._boundary("step", None)

    def end_last_step(self) -> None:
        """The last step ends here, with the recording: what came after the last `step()` belongs to it."""
        if self.running and self.calls.on:
            self._mark(LAST_MARK)

    def _poll(self) -> None:
        """Pass on what C code of the program printed while oneDNN's lines were captured."""
        if self._capture is not None:
            self._capture.poll()

    def _mark(self, name: str) -> None:
        if self.calls.mark is not None:
            with self.calls.mark(name):
                pass

    def _optimizer_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.calls.on:
            return
        known = [number for number, ref in enumerate(self._optimizers) if ref() is optimizer]
        if not known:
            known = [len(self._optimizers)]
            self._optimizers.append(weakref.ref(optimizer))
        self._mark(f"{OPTIMIZER_MARK}{known[0]}")
        self._poll()
        if self._boundary is not None and known[0] == 0:
            self._boundary("optimizer", optimizer)

    def _root_called(self, module: torch.nn.Module) -> None:
        if self._boundary is not None and not private.in_backward():
            self._boundary("root", module)

    def _compiler_is_unknown(self) -> None:
        self.notes.append("This version of torch.compile can't be watched: once it is loaded, calls have no lines.")
        self.stop_watching()

    def _another_profiler_starts(self) -> None:
        global _inherited
        if _inherited is self:
            if self._profiler is not None:
                self._profiler.profiler = None  # it looks as if it were running
            _inherited = self._profiler = None
            self._profiling.pop_all()
            private.drop_inherited_profiler()
        if not self.running:
            return
        self.cut = True
        self.notes.append("The program started a profiler of its own: recording ended there.")
        self.end_profiling()

    def leave_to_parent(self) -> None:
        """In a forked child, such as a data loader's worker: it inherits all this, and must neither log nor profile."""
        global _active, _inherited
        if self.running:
            self.running = False
            self._in_child = True
            _active, _inherited = None, self
            private.record_functions(False)
        self._collector.close()
        self._ending = threading.RLock()  # as it is, a thread that is not here may hold it
        self.modules.forget_other_threads()
        self.stop_watching()

    def _reached_limit(self) -> None:
        self.full = self.cut = True
        ended = f"Recording ended after about {numbers.count(self._max_ops, 'operator')}"
        self.notes.append(f"{ended}, before the program did (see --max-ops).")
        self.end_soon()
        if self._boundary is not None:
            self._boundary("full", None)

    @property
    def first_optimizer(self) -> Any:
        """The optimizer whose steps count, None if none was seen or it is gone."""
        return self._optimizers[0]() if self._optimizers else None

    def end_soon(self) -> None:
        """Log nothing more, and end the profiler: now if this is the thread that started it, else at its next call."""
        self._mark(END_MARK)
        self.calls.close()
        self._end_where_it_started()

    def _end_where_it_started(self) -> None:
        """The profiler must stop on the thread that started it: else at that thread's next call."""
        if threading.get_ident() != self._thread:
            self.calls.pending = self._end_where_it_started
            return
        self.calls.pending = None
        self.end_profiling(watch=self.full)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _log(self) -> CallLog:
        log = build_log(self.calls, self.modules, self.module_names, self.autocast)
        if private.all_threads_config() is None and threading.active_count() > 1:
            # The last note is why a recording was cut.
            self.notes.insert(
                0, "This torch's profiler sees one thread; what other Python threads did is not recorded."
            )
        log.library_log = None if self._library_log is None else self._library_log.decode("utf-8", "replace")
        log.notes = self.notes + log.notes
        log.environment = environment()
        log.warmup, log.limit, log.module_step, log.cut = self.warmup, self.limit, self.module_step, self.cut
        log.apart = self._apart
        return log


@atexit.register
def _at_exit() -> None:
    """A process that ends while a profiler runs crashes: at its very end, where its exit code is lost."""
    if _active is not None:
        _active.running = False
        _active.stop_watching()
        _active._profiling.close()


def _in_forked_child() -> None:
    global _lock
    _lock = threading.Lock()
    for recorder in {_active, _watching}:
        if recorder is not None:
            recorder.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
