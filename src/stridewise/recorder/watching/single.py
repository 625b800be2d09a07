"""One step of a program recorded: begun where a step begins, ended where it ends, and dropped if it was none."""

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from stridewise.errors import NestedRecording, RecordingError
from stridewise.recording.handle import Recording
from stridewise.results import numbers

if TYPE_CHECKING:
    from stridewise.recorder.live import Recorder


OPEN = (
    "an annotation is open where a step ends: end steps outside of record_function blocks,"
    " and of a torch.profiler whose schedule is over"
)


class Dropped(Exception):
    """What was begun is no whole step, or could not be begun; the text says why."""


class Unusable(Exception):
    """No step of this program can be recorded, or none any more; the text says why."""


class Recorded(NamedTuple):
    """A step, and whether an annotation of the program's own was still open when it ended."""

    recording: Recording
    open_annotation: bool
    """It will close inside the next profile if there is one, and torch then writes where it must not."""


class StepRecorder:
    """Records single steps, one after another, on the thread that begins them."""

    def __init__(self, *, library_copies: bool, max_ops: int) -> None:
        self._library_copies = library_copies
        self._max_ops = max_ops
        self._recorder: Recorder | None = None
        self._ident = 0
        self._thread: threading.Thread | None = None
        self._process = 0
        self._hooks = contextlib.ExitStack()
        self._watches_profilers = False
        self._prepared = True
        """Somebody made a profiler ready since we last looked for one that waits."""

    @property
    def running(self) -> bool:
        """Whether a step is being recorded, on whatever thread."""
        return self._recorder is not None

    @property
    def is_here(self) -> bool:
        """Whether this is the thread on which it is."""
        return threading.get_ident() == self._ident and not self.is_orphan

    @property
    def is_orphan(self) -> bool:
        """Whether that thread is no more: the number of it may be another's by now."""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that records it."""
        return self._recorder is not None and os.getpid() != self._process

    def begin(self) -> None:
        """A step begins. Raises Dropped while it can't be recorded."""
        if "torch" not in sys.modules:
            raise Dropped("torch is not imported")
        from stridewise.recorder import live, private

        if live.is_recording():
            raise Dropped("another recording is running")
        self._watch_profilers()
        if self._prepared and private.profiler_steps():
            raise Dropped("another profiler is open: torch.profiler marks its steps until its block ends")
        recorder = live.Recorder(
            library_copies=self._library_copies,
            max_ops=self._max_ops,
            begins_step=True,
            boundary=_gives_way,
        )
        recorder.collector_waits = True
        recorder.looks_for_waiting = self._prepared
        prepared, self._prepared = self._prepared, False
        try:
            recorder.start()
        except NestedRecording as error:
            self._prepared = prepared
            raise Dropped("another profiler is running") from error
        self._recorder, self._ident, self._process = recorder, threading.get_ident(), os.getpid()
        # Not current_thread(), which makes up a Thread for one that Python did not start.
        self._thread = next((thread for thread in threading.enumerate() if thread.ident == self._ident), None)
        self._prepared = not self._watches_profilers

    def end(self) -> Recorded:
        """The step ends. Raises Dropped if it was not recorded as a whole, and Unusable if it never will be."""
        inherited = self.is_inherited
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        if inherited:
            raise Dropped("it is recorded in the process that this one was forked from")
        from stridewise.recording import kineto

        try:
            recorder.end_step()
            recorder.end_profiling()
            has_open = kineto.has_open_annotations(recorder.trace)
        finally:
            recorder.stop()
        if recorder.full:
            raise Unusable(f"a step has more than {numbers.count(self._max_ops, 'operator')} (see max_ops)")
        if recorder.cut:
            raise Dropped(recorder.notes[-1] if recorder.notes else "the recording was broken off")
        return Recorded(recorder.recording, has_open)

    def drop(self) -> None:
        """Forget the step that is being recorded, if one is. Raises Unusable if no other must be recorded after it."""
        inherited = self.is_inherited
        recorder, self._recorder = self._recorder, None
        if recorder is None or inherited:
            return
        orphan = self.is_orphan
        if not orphan and not self.is_here:  # the profiler must end on its own thread: at the next call of torch there
            recorder.end_soon()
            return
        from stridewise.recording import kineto

        try:
            recorder.end_profiling()
            if not orphan and recorder.trace and kineto.has_open_annotations(recorder.trace):
                raise Unusable(OPEN)
        finally:
            with contextlib.suppress(RecordingError):
                recorder.stop()

    def close(self) -> None:
        """Record no more, and leave nothing behind."""
        try:
            with contextlib.suppress(Unusable):
                self.drop()
        finally:
            self._hooks.close()

    def _watch_profilers(self) -> None:
        """Learn of profilers that the program makes ready: to look for those that wait takes as long as a step."""
        if self._watches_profilers:
            return
        from stridewise.recorder import private

        self._watches_profilers = self._hooks.enter_context(private.before_profiler_starts(self._profiler_prepared))

    def _profiler_prepared(self) -> None:
        self._prepared = True


def _gives_way(kind: str, thing: object) -> None:
    """To recorders with a boundary others are no obstacle: a recording of the program's own ends ours first."""
