"""Every private point of torch that recording touches, each behind one function with a fallback.

Tried on torch 2.13.0; `tests/recording/test_private.py` says which points exist on the installed version.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import Any

import torch
import torch.autograd
import torch.autograd.profiler
import torch.overrides

try:
    from torch._C._profiler import _RecordFunctionFast as _fast_mark
except ImportError:  # sites are off then: the public `record_function` costs 17 to 29 us a call
    _fast_mark = None  # type: ignore[assignment, misc]


def mark_type() -> Any | None:
    """The annotation that costs a microsecond: a context manager of a name. None where torch has none."""
    return _fast_mark


def profiler_is_on() -> bool:
    """Whether some profiler runs in this process: a second one crashes it or silently takes over."""
    probe = getattr(torch._C._autograd, "_profiler_enabled", None)
    return bool(probe()) if probe is not None else False


def all_threads_config() -> Any | None:
    """A profiler configuration that also records threads that the program starts. None before torch 2.7 or so."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return None


def has_mode(mode: Any) -> bool:
    """Whether a function mode is on this thread's stack."""
    return any(entry is mode for entry in torch.overrides._get_current_function_mode_stack())


def push_mode(mode: Any) -> None:
    """Put a function mode on top of this thread's stack."""
    torch.overrides._push_mode(mode)


def remove_mode(mode: Any) -> bool:
    """Take a function mode off this thread's stack wherever it lies; the modes above it stay. False if not there."""
    if not has_mode(mode):
        return False
    above = []
    while (top := torch.overrides._pop_mode()) is not mode:
        above.append(top)
    for entry in reversed(above):
        torch.overrides._push_mode(entry)
    return True


@contextmanager
def mode_during_backward(mode: Any, wanted: Callable[[], bool]) -> Iterator[bool]:
    """Put the mode back while the autograd engine runs.

    `Tensor.backward` reaches the mode's handler, and torch takes a mode off while its handler runs: without this,
    everything that Python does in backward (checkpoint's recomputation, hooks, `Function.backward`) is lost.
    """
    original = getattr(torch.autograd, "_engine_run_backward", None)
    if original is None:
        yield False
        return

    def run(*args: Any, **kwargs: Any) -> Any:
        if not wanted() or has_mode(mode):
            return original(*args, **kwargs)
        push_mode(mode)
        try:
            return original(*args, **kwargs)
        finally:
            remove_mode(mode)

    torch.autograd._engine_run_backward = run
    try:
        yield True
    finally:
        torch.autograd._engine_run_backward = original


@contextmanager
def around_compiled_regions(enter: Callable[[FrameType], Any], leave: Callable[[Any], None]) -> Iterator[None]:
    """Call `enter(frame)` when a `torch.compile`d callable is entered and `leave(its result)` when it is left.

    A function mode or global module hooks that Dynamo sees get traced, guarded on, or break it. Its wrapper sets the
    frame evaluation callback on entry and restores the prior one at the end through one function, from the same
    frame; wrappers of `torch._dynamo.disable` call that function too, so the frame's code is looked at.
    """
    entered = threading.local()

    patched: list[tuple[Any, Any]] = []

    def patch(module: Any) -> None:
        original = getattr(module, "_maybe_set_eval_frame", None)
        if original is None:
            return

        def set_callback(callback: Any) -> Any:
            frame = sys._getframe(1)
            regions: list[tuple[FrameType, Any]] = entered.__dict__.setdefault("regions", [])
            if regions and regions[-1][0] is frame:
                leave(regions.pop()[1])
            elif callable(callback) and _is_compile_wrapper(frame.f_code):
                regions.append((frame, enter(frame)))
            return original(callback)

        module._maybe_set_eval_frame = set_callback
        patched.append((module, original))

    name = "torch._dynamo.eval_frame"
    importing = _WhenImported(name, patch)
    if name in sys.modules:
        patch(sys.modules[name])
    else:  # importing it takes a second and much memory: only when the program does
        sys.meta_path.insert(0, importing)
    try:
        yield
    finally:
        importing.withdraw()
        for module, original in patched:
            module._maybe_set_eval_frame = original


def _is_compile_wrapper(code: CodeType) -> bool:
    return code.co_qualname.startswith("_TorchDynamoContext.__call__.")


class _WhenImported(MetaPathFinder):
    """Calls back once a module has been imported, so that nobody has to import it for the callback's sake."""

    def __init__(self, name: str, callback: Callable[[Any], None]) -> None:
        self.name = name
        self.callback = callback

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        self.withdraw()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.callback(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def withdraw(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


@contextmanager
def before_profiler_starts(callback: Callable[[], None]) -> Iterator[bool]:
    """Call back before anything in the program starts a profiler."""
    module = torch.autograd.profiler
    names = [name for name in ("_prepare_profiler", "_enable_profiler") if hasattr(module, name)]
    originals = {name: getattr(module, name) for name in names}

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            callback()
            return original(*args, **kwargs)

        return start

    for name, original in originals.items():
        setattr(module, name, wrap(original))
    try:
        yield bool(names)
    finally:
        for name, original in originals.items():
            setattr(module, name, original)
