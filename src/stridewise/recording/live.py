"""`record()`: an ordinary profiler run, with the call log beside it."""

import contextlib
import os
import platform
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

from stridewise.errors import NestedRecording, RecordingError
from stridewise.recording import private
from stridewise.recording.calls import CallRecorder
from stridewise.recording.handle import Recording
from stridewise.recording.model import (
    BEGIN_MARK,
    OPTIMIZER_MARK,
    STEP_MARK,
    CallLog,
    CallRow,
    LayoutRow,
    ModuleCallRow,
    TensorRef,
    with_log,
)
from stridewise.recording.modules import ModuleRecorder
from stridewise.recording.onednn_capture import VerboseCapture
from stridewise.recording.sources import Sources

MAX_OPS = 200_000
"""The profiler keeps about 3 kB an operator and has no bound of its own."""
OPS_PER_CALL = 3
"""Operators, marks and backward nodes that one logged call stands for, about; the profiler can't be asked."""

_active: "Recorder | None" = None
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


class Recorder:
    """Starts and stops one recording: a context manager, or `start` and `stop` by hand."""

    def __init__(
        self,
        *,
        library_copies: bool = False,
        max_ops: int = MAX_OPS,
        begins_step: bool = False,
        boundary: Callable[[str, object], None] | None = None,
    ) -> None:
        if max_ops < 1:
            raise RecordingError(f"max_ops is {max_ops}.", expected="Expected: a positive number of operators.")
        self.recording = Recording()
        self.warmup = 0
        self.limit: int | None = None
        self.notes: list[str] = []
        self.running = False
        self.full = False
        """`max_ops` was reached."""
        self._library_copies = library_copies
        self._max_ops = max_ops
        self._begins_step = begins_step
        self._boundary = boundary
        self._optimizers: list[weakref.ref[Any]] = []
        self._stack = contextlib.ExitStack()
        self._profiler: profile | None = None
        self._trace = b""
        self._library_log: bytes | None = None
        self._thread = threading.get_ident()

    # -- start and stop --------------------------------------------------------------------------------------------

    def __enter__(self) -> Recording:
        self.start()
        return self.recording

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin. Raises NestedRecording while a recording or another profiler runs: two at once crash the process."""
        global _active
        with _lock:
            if _active is not None:
                raise NestedRecording(
                    "A recording is running already.", advice="End it before another starts; they can't be nested."
                )
            if private.profiler_is_on():
                raise NestedRecording(
                    "Another profiler is running, and a second one would crash the process.",
                    advice="End it first, or hand its trace to `stridewise trace`.",
                )
            _active = self
        try:
            self._start()
        except BaseException:
            _active = None
            self._stack.close()
            raise

    def _start(self) -> None:
        self._thread = threading.get_ident()
        self.calls = calls = CallRecorder(max(1, self._max_ops // OPS_PER_CALL), self._reached_limit)
        self.modules = modules = ModuleRecorder(calls, self._root_called)
        self._capture = VerboseCapture() if self._library_copies else None
        sites_on = calls.mark is not None
        if not sites_on:
            self.notes.append("This torch has no cheap annotations: copies are counted, but have no source lines.")
        stack = self._stack
        if self._capture is not None:  # before the profiler, since starting it runs a reorder
            stack.enter_context(self._capture)
            if self._capture.unavailable:
                self.notes.append(f"Copies inside oneDNN were not recorded: {self._capture.unavailable}.")
            else:
                calls.position = self._capture.position
        profiler = profile(
            activities=_activities(), record_shapes=True, experimental_config=private.all_threads_config()
        )
        with _quiet_kineto():
            profiler.start()
        self._profiler = profiler
        stack.callback(profiler.stop)
        stack.enter_context(private.before_profiler_starts(self._another_profiler_starts))
        if sites_on:
            stack.enter_context(modules.installed())
            stack.enter_context(private.around_compiled_regions(self._enter_compiled, self._leave_compiled))
            stack.enter_context(private.mode_during_backward(calls, lambda: calls.on and not calls.hidden))
            handle = register_optimizer_step_post_hook(self._optimizer_stepped)
            stack.callback(handle.remove)
            self._watch_new_threads()
            _after_fork(calls)
            private.push_mode(calls)
            stack.callback(private.remove_mode, calls)
            if self._begins_step:
                self._mark(BEGIN_MARK)
        self.running = True

    def stop(self) -> None:
        """End, and hand what was recorded to the Recording. Ending twice does nothing."""
        if self._profiler is None:
            return
        try:
            self.end_profiling()
            private.remove_mode(self.calls)
            if self.full:
                self.notes.append(f"{self.calls.unlogged:,} later calls were seen and not recorded.")
            self.recording.finish(with_log(self._trace, self._log()))
        finally:
            self._profiler = None

    def end_profiling(self) -> None:
        """Stop the profiler and the log and take every hook out; the program goes on, `stop` is still to come."""
        global _active
        if not self.running:
            return
        self.running = False
        try:
            self.calls.close()
            self.modules.leave_all()
            self.module_names = self.modules.learn_names()
            if self._capture is not None and not self._capture.unavailable:
                self._library_log = self._capture.take()
            self._stack.close()
            assert self._profiler is not None
            self._trace = _export(self._profiler)
        finally:
            with _lock:
                _active = None

    # -- what happens while it runs --------------------------------------------------------------------------------

    def end_step(self) -> None:
        """The program says that a step ends."""
        if self.running and self.calls.on:
            self._mark(STEP_MARK)
            if self._boundary is not None:
                self._boundary("step", None)

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
        if self._boundary is not None and known[0] == 0:
            self._boundary("optimizer", optimizer)

    def _root_called(self, module: torch.nn.Module) -> None:
        if self._boundary is not None:
            self._boundary("module", module)

    def _enter_compiled(self, frame: FrameType) -> Any:
        if not self.calls.on or not private.has_mode(self.calls):
            return None
        hooks = contextlib.ExitStack()
        hooks.enter_context(self.modules.uninstalled())
        return hooks, self.calls.enter_compiled_region(frame.f_back or frame)

    def _leave_compiled(self, entered: Any) -> None:
        if entered is not None:
            hooks, mark = entered
            self.calls.leave_compiled_region(mark)
            hooks.close()

    def _watch_new_threads(self) -> None:
        """Threads that start from now on get the mode on their first event, if the profiler sees threads at all."""
        if private.all_threads_config() is None:
            return
        before = threading.getprofile()
        calls = self.calls

        def first_event(frame: FrameType, event: str, argument: Any) -> None:
            sys.setprofile(before)
            if calls.on:
                private.push_mode(calls)

        threading.setprofile(first_event)
        self._stack.callback(threading.setprofile, before)

    def _another_profiler_starts(self) -> None:
        if not self.running:
            return
        self.notes.append("The program started a profiler of its own: recording ended there.")
        self.end_profiling()

    def _reached_limit(self) -> None:
        self.full = True
        self.notes.append(
            f"Recording ended after about {self._max_ops:,} operators, before the program did (see --max-ops)."
        )
        self._end_where_it_started()

    def _end_where_it_started(self) -> None:
        """The profiler must stop on the thread that started it: else at that thread's next call."""
        if threading.get_ident() != self._thread:
            self.calls.pending = self._end_where_it_started
            return
        self.calls.pending = None
        self.end_profiling()

    # -- the log -----------------------------------------------------------------------------------------------------

    def _log(self) -> CallLog:
        calls, modules = self.calls, self.modules
        if private.all_threads_config() is None and threading.active_count() > 1:
            self.notes.append("This torch's profiler sees one thread; what other Python threads did is not recorded.")
        module_calls = {row[0]: position for position, row in enumerate(modules.calls)}
        rows = sorted(list(calls.calls), key=lambda row: row[0])
        sources = Sources()
        log = CallLog(
            sites=[sources.site(code, lasti) for code, lasti in calls.site_codes],
            functions=calls.function_names,
            modules=modules.paths(),
            layouts=[LayoutRow(*row) for row in calls.layout_rows],
            refs=[TensorRef(*row) for row in calls.ref_rows],
            names=self.module_names,
            calls=[
                CallRow(number, site, via, function, module_calls.get(module, -1), inputs, outputs)
                for number, site, via, function, module, inputs, outputs in rows
            ],
            module_calls=[
                ModuleCallRow(number, module, module_calls.get(parent, -1), inputs, outputs)
                for number, module, parent, inputs, outputs in modules.calls
            ],
            library_log=None if self._library_log is None else self._library_log.decode("utf-8", "replace"),
            library_ranges=calls.library_ranges,
            notes=self.notes,
            environment=_environment(),
            warmup=self.warmup,
            limit=self.limit,
        )
        if not sources.exact:
            log.expressions = False
            log.notes.append("Python runs without column positions (-X no_debug_ranges): sites are whole lines.")
        return log


def _activities() -> list[ProfilerActivity]:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return activities


@contextlib.contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Kineto of torch 2.13 prints `USDT:` lines to stderr, unless the environment said so at the first profile."""
    name = "KINETO_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = "99"
    try:
        yield
    finally:
        del os.environ[name]


def _export(profiler: profile) -> bytes:
    with tempfile.TemporaryDirectory(prefix="stridewise-") as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)  # once: a second export raises
        return Path(path).read_bytes()


def _after_fork(calls: CallRecorder) -> None:
    """A forked child, such as a data loader's worker, inherits the mode and must not log."""
    ref = weakref.ref(calls)

    def close() -> None:
        recorder = ref()
        if recorder is not None:
            recorder.on = False

    os.register_at_fork(after_in_child=close)


def _environment() -> dict[str, str]:
    """What a reader of figures must know. No host, no user, no argument, no variable."""
    environment = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": str(torch.get_num_threads()),
        "machine": platform.machine(),
        "recorded": time.strftime("%Y-%m-%d"),
    }
    if torch.cuda.is_available():
        environment["device"] = torch.cuda.get_device_name()
    return environment
