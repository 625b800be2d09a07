"""`stridewise run`: a script runs as it would, and a few of its steps are recorded."""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from stridewise.errors import InputError, RecordingError, StridewiseError
from stridewise.recorder import tracebacks
from stridewise.recorder.imports import WhenImported
from stridewise.recorder.next_step import next_step
from stridewise.recorder.program import Program
from stridewise.recorder.roots import Roots
from stridewise.recorder.termination import Termination
from stridewise.recording import kineto
from stridewise.recording.handle import Recording
from stridewise.recording.steps import Boundary, StepCount
from stridewise.results import numbers

if TYPE_CHECKING:
    from torch.nn import Module

    from stridewise.recorder.live import Recorder

PATIENCE = 64
"""How many times as many calls of a model as there are steps to record are awaited if an optimizer has yet to step."""


current: "ScriptRecorder | None" = None
"""Of the script that runs in this process: others who would record stay out of its way."""
termination: Termination | None = None
"""What SIGTERM does meanwhile, if something else than to end the process."""


class Options(Struct, frozen=True):
    """What to record of a script, and where to save it."""

    steps: int = 3
    warmup: int = 2
    module_step: str | None = None
    save: Path | None = None
    library_copies: bool = False
    max_ops: int = 200_000


class Ran(Struct, frozen=True):
    """How a script ended, what was recorded of it, and what could not be."""

    recording: Recording | None
    exit_code: int
    messages: tuple[str, ...]
    saved: bool = True
    """False if it could not be written to where it was to be saved."""


class Recorded(Struct, frozen=True):
    """A recording that ended where a step of the script did, and how to tell its steps from here on."""

    recording: Recording
    told_by: Boundary
    optimizer: Any
    """The optimizer that counts; None if it is gone, or none was seen."""


def run(argv: list[str], *, module: bool, options: Options, then: Callable[[Recorded], None] | None = None) -> Ran:
    """Run a script, or with `module` a module, with its arguments. Its exceptions and its exit end here.

    `then` is called within the script as soon as recording has ended, if that is before the script ends. The exit code
    is Python's, and 130 after a KeyboardInterrupt. In a process that the script forked this does not return but exits.
    Raises UsageError or InputError where there is nothing to run.
    """
    program = Program(argv, module=module)
    parent = os.getpid()
    recorder = ScriptRecorder(options, then)
    with _as_current(recorder), program:
        recorder.listen()
        try:
            error = _outcome(program)
            if termination is not None:
                termination.hold()  # until the process ends: what is left to do is to tell of the script
            if os.getpid() == parent:
                recorder.end(broken_off=error is not None and not isinstance(error, SystemExit))
        except BaseException:
            recorder.end(broken_off=True)
            raise
        code = 0
        if isinstance(error, SystemExit):
            code = tracebacks.exit_code(error)
        elif error is not None:
            code = tracebacks.show(error)
        if os.getpid() != parent:
            _leave_forked(code)
        return Ran(recorder.finish(), code, tuple(recorder.messages), recorder.saved)


@contextlib.contextmanager
def _as_current(recorder: "ScriptRecorder") -> Iterator[None]:
    global current
    current = recorder
    try:
        yield
    finally:
        current = None


def _leave_forked(code: int) -> NoReturn:
    """End a process that the script forked, as the interpreter does but for one thing.

    Once a process has had a profiler, a forked child hangs in the C library's exit: libkineto's destructor waits there
    for a thread that only the parent has (torch 2.13, `ConfigLoader`).
    """
    if "torch.profiler" not in sys.modules:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or closed
            stream.flush()
    os._exit(code & 0xFF)


def _outcome(program: Program) -> BaseException | None:
    """Run it, and give what it ended with. A StridewiseError is raised if there is nothing to run."""
    try:
        code = program.load()
    except StridewiseError:
        raise
    except BaseException as error:
        return error
    try:
        program.run(code)
    except BaseException as error:
        return error
    return None


def _has_torch() -> bool:
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


class ScriptRecorder:
    """Records the first steps after warm-up: from the import of torch until there are enough of them.

    torch is not imported for a script that does without, nor before a script has set the variables that torch reads.
    Recording begins there, before any step does, so that what set-up makes is known.
    """

    def __init__(self, options: Options, then: Callable[[Recorded], None] | None = None) -> None:
        self.options = options
        self._then = then
        self.messages: list[str] = []
        self.saved = True
        self.recording: Recording | None = None
        self._recorder: Recorder | None = None
        self._dropped: Recorder | None = None
        """A recording that was full before a step was over: kept for the case that no better one comes."""
        self._count = StepCount(warmup=options.warmup, limit=options.steps)
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._importing = WhenImported("torch", lambda torch: self._begin())
        self._hooks = contextlib.ExitStack()
        self._roots = Roots(options.module_step)

    # -- from the beginning to the end -----------------------------------------------------------------------------

    def listen(self) -> None:
        """Record from the moment when torch has been imported."""
        if "torch" in sys.modules:
            self._begin()
        else:
            sys.meta_path.insert(0, self._importing)

    def end(self, *, broken_off: bool) -> None:
        """The script has ended: take every hook out. `broken_off` says that it did not want to end there."""
        self._importing.withdraw()
        self._hooks.close()
        recorder = self._recorder
        if recorder is not None and recorder.running:
            recorder.cut = recorder.cut or broken_off
            own = threading.current_thread()
            # Not waited for: they may wait for the main thread, which would have ended by now.
            left = sum(not thread.daemon and thread is not own for thread in threading.enumerate())
            if left:
                recorder.notes.append(f"Threads still ran when the script ended ({left}): recording ended with it.")
            recorder.end_profiling()

    def finish(self) -> Recording | None:
        """What was recorded, None if nothing was; saved, if that was asked for."""
        held = termination
        if held is None:
            return self._finish()
        held.hold()
        try:
            return self._finish()
        finally:
            held.release()

    def _finish(self) -> Recording | None:
        recorder = self._recorder
        if recorder is None:
            if "torch" not in sys.modules:
                self.messages.append(
                    "The script did not import torch: there is nothing to report."
                    if _has_torch()
                    else "torch is not installed here: there is nothing to record."
                )
            return self.recording
        dropped, self._recorder, self._dropped = self._dropped, None, None
        try:
            recorder.stop()
            if dropped is not None and not self._count.whole:
                recorder = dropped
                recorder.stop()
            self.recording = recorder.recording
            if self.options.save is not None:
                self.saved = False  # until it is
                self.recording.save(self.options.save)
                self.saved = True
        except (InputError, RecordingError) as error:
            self.messages.append(str(error))
        return self.recording

    def _begin(self) -> None:
        if os.getpid() != self._process:  # a forked child has imported it
            return
        if threading.get_ident() != self._thread:
            self.messages.append("Nothing was recorded: torch was first imported by a thread other than the main one.")
            return
        try:
            self._record(StepCount(warmup=self.options.warmup, limit=self.options.steps), [])
        except RecordingError as error:
            self.messages.append(f"Nothing was recorded. {error}")

    def _record(self, count: StepCount, notes: list[str]) -> None:
        from stridewise.recorder.live import Recorder

        options = self.options
        recorder = Recorder(
            library_copies=options.library_copies,
            max_ops=options.max_ops,
            begins_step=count.began_at_step,
            boundary=self._boundary,
        )
        recorder.warmup, recorder.limit, recorder.module_step = count.warmup, count.limit, options.module_step
        recorder.notes += notes
        count.asked = options.module_step is not None
        self._hooks.close()
        recorder.start()
        self._recorder, self._count = recorder, count
        if count.asked:
            self._hooks.enter_context(self._roots.watching_asked(self._asked_module_called))

    # -- while it is recorded --------------------------------------------------------------------------------------

    def _boundary(self, kind: str, thing: Any) -> None:
        count = self._count
        if kind == "root":
            self._roots.see_training(thing)
            number = self._roots.number(thing)
            count.saw_root(abs(number), weightless=number < 0)
        elif kind == "step":
            count.saw("step")
        elif kind == "optimizer":
            count.saw("optimizer")
        elif kind == "full":
            self._full()
            return
        if count.enough and not (kind == "root" and self._waits()):
            self._enough()

    def _enough(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        recorder.end_soon()
        if not recorder.running:  # else it ends at the next call of its own thread
            self._hooks.close()
            optimizer, told_by = recorder.first_optimizer, self._count.told_by
            recording = self.finish()
            if recording is not None and self._then is not None:
                self._then(Recorded(recording, told_by, optimizer))

    def _waits(self) -> bool:
        """Whether the calls of root modules that were counted may be no steps.

        A program that so far called nothing but transforms has not got to its model yet.
        """
        count = self._count
        if count.seen["root"] > PATIENCE * (count.warmup + count.limit):
            return False
        return not count.roots or self._awaits_optimizer()

    def _awaits_optimizer(self) -> bool:
        return not self._count.seen["optimizer"] and self._roots.await_optimizer()

    def _asked_module_called(self) -> None:
        from stridewise.recorder import private

        recorder = self._recorder
        if recorder is not None and recorder.calls.on and not private.in_backward():
            self._count.saw("module-step")
            if self._count.enough:
                self._enough()

    # -- when it is full -------------------------------------------------------------------------------------------

    def _full(self) -> None:
        recorder, count = self._recorder, self._count
        assert recorder is not None
        if recorder.running:  # full on another thread: it ends at the next call of its own
            return
        self._hooks.close()
        has_steps = count.recorded and not (count.told_by == "root" and self._awaits_optimizer())
        if has_steps or self._dropped is not None or kineto.has_open_annotations(recorder.trace):
            self.finish()
            return
        recorder.stop_watching()
        self._dropped = recorder
        optimizer = recorder.first_optimizer
        root = count.busiest_root

        def is_root(module: "Module") -> bool:
            if optimizer is not None or (root is not None and abs(self._roots.number(module)) != root):
                return False
            self._roots.see_training(module)
            return not self._awaits_optimizer()

        def is_optimizer(stepped: Any) -> bool:
            return optimizer is None or stepped is optimizer

        self._hooks.enter_context(next_step(self._begin_again, is_optimizer=is_optimizer, is_root=is_root))

    def _begin_again(self, at_step: bool) -> None:
        from stridewise.recorder import private

        dropped = self._dropped
        if dropped is None or private.profiler_is_on() or threading.get_ident() != self._thread:
            return
        warmup = max(0, self.options.warmup - self._count.whole - 1)
        count = StepCount(warmup=warmup, limit=self.options.steps, began_at_step=at_step)
        passed = numbers.count(self.options.max_ops, "operator")
        note = f"{passed} passed before a step after warm-up was over: recorded from there on."
        try:
            self._record(count, [note])
        except RecordingError as error:
            self.messages.append(str(error))
