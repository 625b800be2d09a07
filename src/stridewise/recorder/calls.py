"""The call log while it is being written: a function mode that sees every call the program makes of torch.

Everything in `CallRecorder.__torch_function__` runs once a call: it is written for speed, and says so where
that costs clarity. Nothing here keeps a tensor, a module or a storage of the program alive.
"""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function

from stridewise.recorder import private
from stridewise.recorder.frames import FrameTable, forget_frames_below
from stridewise.recorder.functions import DIMENSIONS, DIRECT, function_name, functions_without_ops, may_be_kept
from stridewise.recorder.tensors import TensorTable
from stridewise.recording.model import COMPILED, MARK

_getframe = sys._getframe
_tracing_state = torch._C._get_tracing_state
_modes_below = torch._C._len_torch_function_stack
_Tensor = torch.Tensor
_WITHOUT_OPS = functions_without_ops()
_HANDLER = handle_torch_function.__code__
_LONGEST_PAUSE = 0.5
"""Seconds that threads wait for each other when a recording ends."""
_REFS_PER_CALL = 16
"""Calls of fused optimizers take thousands of tensors: the log is full with that many states of tensors, too."""


class _Local(threading.local):
    """What is known of a thread; reading what was never set there must cost no exception."""

    autocast = -1
    """The innermost region of autocast."""


class CallRecorder(TorchFunctionMode):
    """Marks each call in the trace and logs where it was made and what tensors went in and came out.

    `limit` is a number of calls; when it is reached, `full` is called once and the log stops growing.
    """

    def __init__(self, limit: int, full: Callable[[], None]) -> None:
        super().__init__()
        self.on = True
        self.profiled = True
        """The profiler that the marks go to still runs."""
        self.ended = False
        """The mode has to leave the threads that it is still on."""
        self.limit = limit
        self.full = full
        self.unlogged = 0
        """Calls seen after the log was closed."""
        self.fast_path_codes: frozenset[int] = frozenset()
        """Addresses of the code of functions that run other kernels while a function mode is on."""
        self.fast_path_begins: Callable[[FrameType], None] = lambda frame: None
        """Told when one of them runs with this mode on."""
        self.pending: Callable[[], None] | None = None
        """What is to be done at the next call on the right thread, after the log was closed on another."""
        self.gate: threading.Event | None = None
        """Where other threads wait at their next call while the profiler ends."""
        self.failure: str | None = None
        """The first exception of our own; none may reach the program."""
        self.failures = 0
        self.mark: Any = private.mark_type()
        self.position: Callable[[], int] | None = None
        """Of a library's own log, where one is kept."""
        self.numbers = itertools.count()
        """Of calls and module calls alike: `next` on it is atomic."""
        self.calls: list[tuple[Any, ...]] = []
        """In the order in which they ended."""
        self.library_ranges: list[tuple[int, int, int]] = []
        self.frames = FrameTable()
        self.tensors = TensorTable()
        self.ref = self.tensors.ref
        self.functions: dict[Any, int] = dict(_WITHOUT_OPS)
        self.function_names: list[str] = []
        self.local = _Local()
        self._names: dict[str, int] = {}
        self._lock = threading.RLock()

    # -- the hot path --------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = result = None
        try:
            try:
                function = self.functions.get(func)
            except Exception:  # a callable of the program's that can't be hashed
                function = None
            if function == DIRECT and not self.ended:
                return func(*args, **kwargs) if kwargs else func(*args)

            frame = _getframe(1)
            if function == DIMENSIONS and id(frame.f_code) in self.fast_path_codes:
                self.fast_path_begins(frame)
            if frame.f_code is _HANDLER:
                frame = _caller_of_function(frame)
            place = self.frames.places.get((id(frame.f_code), frame.f_lasti)) or self.frames.place(frame)
            call = FunctionType(place.stand_in, frame.f_globals)
            if not self.on or (function is not None and function < 0) or _tracing_state() is not None:
                if not self.on:
                    self.after_the_end()
                return call(func, args, kwargs)

            outputs: list[int] = []
            below = _modes_below()
            try:
                if below:  # the program's own modes must not see our looking at tensors
                    with torch._C.DisableTorchFunction():
                        inputs = self._refs_of_arguments(args, kwargs, outputs)
                else:
                    inputs = self._refs_of_arguments(args, kwargs, outputs)
                if function is None:
                    function = self.function(func)
                site, via = place.site, -1
                if site < 0:
                    site, via = self.frames.find(frame)
                local = self.local
                autocast = local.autocast
                try:
                    module = local.modules[-1]
                except (AttributeError, IndexError):
                    module = -1
                number = self.open_row()
            except Exception as error:
                self.failed(error)
                return call(func, args, kwargs)
            frame = None
            position = self.position
            before = position() if position is not None else 0
            mark = self.mark(f"{MARK}{number}")
            mark.__enter__()
            try:
                result = call(func, args, kwargs)
            finally:
                if self.profiled:
                    mark.__exit__(None, None, None)
                else:
                    self.end_mark(mark)
                if position is not None and (after := position()) != before:
                    self.library_ranges.append((number, before, after))
                if isinstance(result, (_Tensor, list, tuple)):
                    if below:
                        with torch._C.DisableTorchFunction():
                            self._refs_of_result(result, outputs)
                    else:
                        self._refs_of_result(result, outputs)
                # Tuples of numbers: the garbage collector looks at each once, at lists again and again.
                self.calls.append((number, site, via, function, module, tuple(inputs), tuple(outputs), autocast))
            return result
        except BaseException as error:
            forget_frames_below(error)
            func = args = kwargs = frame = result = None  # a traceback would keep them alive
            raise

    def _refs_of_arguments(self, args: Any, kwargs: Any, outputs: list[int]) -> list[int]:
        ref = self.ref
        inputs = []
        for value in args:
            if isinstance(value, _Tensor):
                inputs.append(ref(value))
            elif type(value) is list or type(value) is tuple:
                inputs += self._refs_in(value)
        if kwargs:
            for name, value in kwargs.items():
                into = outputs if name == "out" else inputs
                if isinstance(value, _Tensor):
                    into.append(ref(value))
                elif type(value) is list or type(value) is tuple:
                    into += self._refs_in(value)
        return inputs

    def _refs_of_result(self, result: Any, outputs: list[int]) -> None:
        if isinstance(result, _Tensor):
            outputs.append(self.ref(result))
        else:
            outputs += self._refs_in(result)

    def open_row(self) -> int:
        """The number of a new call."""
        number = next(self.numbers)
        if (number >= self.limit or len(self.tensors.rows) >= self.limit * _REFS_PER_CALL) and self.on:
            self.close()
            self.full()
        return number

    def _refs_in(self, values: Any) -> list[int]:
        """The tensors in a list or tuple. One that starts with a number holds sizes, or data for a new tensor."""
        first = values[0] if values and type(values) in (list, tuple) else None
        if type(first) in (int, float, bool):
            return []
        kind = list if isinstance(values, list) else tuple
        return [self.ref(entry) for entry in kind.__iter__(values) if isinstance(entry, _Tensor)]

    def open_call(self, function: int, frame: FrameType | None, inputs: Sequence[int] = ()) -> "OpenCall":
        """A call that `frame` makes or hands on, opened and closed from elsewhere than the mode's handler."""
        site, via = self.frames.find(frame)
        stack = self.module_stack()
        return OpenCall(self, (site, via, function, stack[-1] if stack else -1, tuple(inputs)))

    # -- names -----------------------------------------------------------------------------------------------------

    def function(self, func: Any) -> int:
        """The number of a function's name."""
        try:
            known = self.function_named(function_name(func))
            if may_be_kept(func):
                self.functions[func] = known
        except Exception:  # a callable of the program's with a name of its own mind
            return self.function_named(f"{type(func).__module__}.{type(func).__qualname__}")
        return known

    def function_named(self, name: str) -> int:
        """The number of a function by its name."""
        with self._lock:
            known = self._names.get(name)
            if known is None:
                known = self._names[name] = len(self.function_names)
                self.function_names.append(name)
        return known

    # -- what else the program does ---------------------------------------------------------------------------------

    def module_stack(self) -> list[int]:
        """The module calls that are running on this thread, outermost first."""
        try:
            stack: list[int] = self.local.modules
        except AttributeError:
            stack = self.local.modules = []
        return stack

    @property
    def hidden(self) -> bool:
        """Whether the mode is off on this thread on purpose, see `hide`."""
        return bool(getattr(self.local, "hidden", 0))

    def hide(self) -> bool:
        """Take the mode off this thread until `show`. False, and nothing to show, if it was not on."""
        if not private.remove_mode(self):
            return False
        self.local.hidden = getattr(self.local, "hidden", 0) + 1
        return True

    def show(self) -> None:
        """Put the mode back on after `hide`."""
        self.local.hidden -= 1
        if not self.ended:
            private.push_mode(self)

    def enter_compiled_region(self, frame: FrameType) -> Any:
        """Log a compiled region as one call and keep the mode out of Dynamo's sight. Give what comes back to leave."""
        if not self.hide():
            return None
        if not self.on:
            return _NOTHING
        return self.open_call(self.function_named(COMPILED), frame)

    def leave_compiled_region(self, call: Any) -> None:
        """The counterpart of `enter_compiled_region`."""
        if call is not None:
            call.__exit__(None, None, None)
            self.show()

    def after_the_end(self) -> None:
        """A call was seen after the log was closed."""
        self.unlogged += 1
        gate = self.gate
        if gate is not None:
            gate.wait(_LONGEST_PAUSE)
        if self.pending is not None:
            self.pending()
        if self.ended:
            private.remove_mode_soon(self)

    @contextlib.contextmanager
    def others_paused(self) -> Iterator[None]:
        """Other threads that have the mode are between two calls of torch, and stay there, while the body runs.

        torch's profiler of all threads must not end while one is in an operator: it then reads what that thread is
        writing, and fails or crashes (one in some hundred ends under load, without stridewise too). A thread in a
        call that takes long is not waited for.
        """
        self.gate = threading.Event()
        try:
            latest = time.monotonic() + _LONGEST_PAUSE
            while _is_any_other_thread_in_a_call() and time.monotonic() < latest:
                time.sleep(0.001)
            yield
        finally:
            gate, self.gate = self.gate, None
            gate.set()

    def failed(self, error: Exception) -> None:
        """Something of our own went wrong while the program ran: it goes on, and the recording says so."""
        self.failures += 1
        if self.failure is None:
            self.failure = f"{type(error).__name__}: {error}"

    def end_mark(self, mark: Any) -> None:
        """Leave a mark. One whose profiler has ended meanwhile is never left, nor freed, which would leave it too.

        If another profiler ran by then, torch would write the time into an event that is no longer there.
        """
        if self.profiled:
            mark.__exit__(None, None, None)
        else:
            _ABANDONED.append(mark)

    def close(self) -> None:
        """Stop logging; from now on calls are only counted."""
        self.on = False


_ABANDONED: list[Any] = []
_NOTHING = contextlib.nullcontext()


def _is_any_other_thread_in_a_call() -> bool:
    """Whether another thread runs a function of torch below the mode's handler, and does not wait at the gate."""
    running, waiting = CallRecorder.__torch_function__.__code__, CallRecorder.after_the_end.__code__
    own = threading.get_ident()
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = None if thread == own else innermost
        while frame is not None and frame.f_code is not waiting:
            if frame.f_code is running:
                return True
            frame = frame.f_back
    return False


class OpenCall:
    """A call that is running: its row is written when it ends."""

    def __init__(self, recorder: CallRecorder, row: tuple[Any, ...]) -> None:
        self.recorder = recorder
        self.number = recorder.open_row()
        self.row = row
        self.autocast = recorder.local.autocast
        self.outputs: list[int] = []
        assert recorder.mark is not None
        self.mark = recorder.mark(f"{MARK}{self.number}")
        self.mark.__enter__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self.recorder.end_mark(self.mark)
        self.recorder.calls.append((self.number, *self.row, tuple(self.outputs), self.autocast))


def _caller_of_function(handler: FrameType) -> FrameType:
    """The frame that called the function of torch which asked for its modes by `handle_torch_function`."""
    function = handler.f_back
    return (function and function.f_back) or handler
