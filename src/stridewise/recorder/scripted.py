"""Calls into TorchScript: no function mode sees them, nor what Python calls inside, for there is none."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import torch

from stridewise.recorder import private
from stridewise.recorder.calls import CallRecorder, OpenCall
from stridewise.recorder.frames import forget_frames_below
from stridewise.recorder.tensors import tensors_in
from stridewise.recording.model import SCRIPTED

_KINDS = ("ScriptMethod", "ScriptFunction")
"""What `torch.jit.script` and `torch.jit.trace` make of methods and functions. Tried on torch 2.6, 2.13 and 2.14."""
_getframe = sys._getframe


@contextlib.contextmanager
def scripted_calls_logged(recorder: CallRecorder) -> Iterator[bool]:
    """Log each call of a scripted or traced function or method. Yields False, and logs none, where torch has none.

    They are called by `__call__` of their types, which are torch's own: with a scripted module that is `forward`.
    """
    kinds = [kind for name in _KINDS if "__call__" in vars(kind := getattr(torch._C, name, object))]
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            if kind is not object:
                wrapped = _logging(recorder, vars(kind)["__call__"])
                stack.enter_context(private.replaced(kind, "__call__", wrapped))
        yield object not in kinds


def _logging(recorder: CallRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    def call_scripted(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened = result = None
        frame: FrameType | None = _getframe(1)
        try:
            assert frame is not None
            place = recorder.frames.place(frame)
            call = FunctionType(place.stand_in, frame.f_globals)  # torch's warnings are attributed to the caller
            if recorder.on and torch._C._get_tracing_state() is None and private.has_mode(recorder):
                opened = _opened(recorder, self, frame, args, kwargs)
            frame = None
            try:
                result = call(original, (self, *args), kwargs)
            finally:
                if opened is not None:
                    _close(recorder, opened, result)
            return result
        except BaseException as error:
            forget_frames_below(error)
            self = args = kwargs = frame = result = None  # type: ignore[assignment]  # a traceback would keep them
            raise

    return call_scripted


def _opened(recorder: CallRecorder, scripted: Any, frame: FrameType, args: Any, kwargs: Any) -> OpenCall | None:
    try:
        site, _ = recorder.frames.find(frame)  # between the program and a scripted module is torch, which tells nothing
        stack = recorder.module_stack()
        inputs = _refs(recorder, (args, kwargs))
        function = recorder.function_named(SCRIPTED + _name(scripted))
        return OpenCall(recorder, (site, -1, function, stack[-1] if stack else -1, inputs))
    except Exception as error:
        recorder.failed(error)
        return None


def _close(recorder: CallRecorder, opened: OpenCall, result: Any) -> None:
    try:
        opened.outputs += _refs(recorder, result)
    except Exception as error:
        recorder.failed(error)
    opened.__exit__(None, None, None)


def _refs(recorder: CallRecorder, values: Any) -> tuple[int, ...]:
    with torch._C.DisableTorchFunction():  # our own mode is still on
        return tuple(recorder.ref(tensor) for _, tensor in tensors_in(values))


def _name(scripted: Any) -> str:
    """`forward` of a module with its class, as `Encoder.forward`; a function by its own name."""
    owner = getattr(scripted, "owner", None)
    kind = str(getattr(owner, "qualified_name", "") or "").rpartition(".")[2]
    return f"{kind}.{scripted.name}" if kind else str(scripted.name)
