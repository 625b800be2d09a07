"""Every private point of torch and Python that recording touches, each behind one function with a fallback.

Those of `torch.compile` are in `compiler`. Tried on torch 2.13.0 and Python 3.11; `tests/recording/test_private.py`
says which points exist on the installed versions, and takes each away.
"""

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
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


def is_fake(kind: type) -> bool:
    """Whether a class of tensors is that of fake ones: with sizes and strides, and without memory."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return isinstance(fake, type) and issubclass(kind, fake)


@contextmanager
def replaced(owner: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Put a function in another's place. What somebody puts in its own place meanwhile stays, and still calls it."""
    original = vars(owner)[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner).get(name) is replacement:
            setattr(owner, name, original)


@contextmanager
def before_tensors_swap(callback: Callable[[], None]) -> Iterator[bool]:
    """Call back before two tensors are swapped: that fails while one of them has a weak reference."""
    original = getattr(torch.utils, "swap_tensors", None)
    if original is None:
        yield False
        return

    def swap_tensors(first: Any, second: Any) -> Any:
        callback()
        return original(first, second)

    with replaced(torch.utils, "swap_tensors", swap_tensors):
        yield True


# -- profilers -----------------------------------------------------------------------------------------------------


def profiler_is_on(*, waiting: bool = True) -> bool:
    """Whether some profiler runs in this process, or is about to: a second one crashes it or silently takes over.

    `_profiler_enabled` knows of this thread's, `_is_profiler_enabled` of any thread's, and neither of one whose
    schedule is in its warm-up. That one has been entered and has no results. It takes a look at every object that there
    is, tens of milliseconds: without `waiting` it is left out.
    """
    probe = getattr(torch._C._autograd, "_profiler_enabled", None)
    if (probe is not None and probe()) or getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
        return True
    if not waiting:
        return False
    kind = torch.autograd.profiler.profile
    return any(
        type(thing) is kind and getattr(thing, "entered", False) and getattr(thing, "kineto_results", True) is None
        for thing in gc.get_referrers(kind)
    )


def profiler_steps() -> bool:
    """Whether the program is inside a `torch.profiler.profile` that marks steps, though its schedule may be over.

    Its annotation `ProfilerStep#` is open then wherever a step ends. False where torch keeps it elsewhere than 2.13.
    """
    kind = torch.profiler.profile
    return any(
        type(thing) is kind and getattr(thing, "step_rec_fn", None) is not None for thing in gc.get_referrers(kind)
    )


def all_threads_config() -> Any | None:
    """A profiler configuration that also records threads that the program starts. None before torch 2.7 or so."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return None


@contextmanager
def before_profiler_starts(callback: Callable[[], None]) -> Iterator[bool]:
    """Call back before anything in the program starts a profiler."""
    module = torch.autograd.profiler
    names = [name for name in ("_prepare_profiler", "_enable_profiler") if hasattr(module, name)]
    active = True

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            if active:
                callback()
            return original(*args, **kwargs)

        return start

    wrapped = {name: (getattr(module, name), wrap(getattr(module, name))) for name in names}
    for name, (_, wrapper) in wrapped.items():
        setattr(module, name, wrapper)
    try:
        yield bool(names)
    finally:
        active = False
        for name, (original, wrapper) in wrapped.items():
            if getattr(module, name) is wrapper:
                setattr(module, name, original)


def record_functions(on: bool) -> None:
    """Whether profilers see the operators of this thread: those of a forked child would fill its memory for nobody."""
    switch = getattr(torch._C._autograd, "_enable_record_function", None)
    if switch is not None:
        switch(on)


def drop_inherited_profiler() -> None:
    """In a forked child: end the profiler that it has from its parent, so that one of its own can start."""
    record_functions(True)
    disable = getattr(torch._C._autograd, "_disable_profiler", None)
    if disable is not None:
        disable()
    torch.autograd.profiler._is_profiler_enabled = False


# -- function modes ------------------------------------------------------------------------------------------------


def has_mode(mode: Any) -> bool:
    """Whether a function mode is on this thread's stack."""
    return any(entry is mode for entry in torch.overrides._get_current_function_mode_stack())


def push_mode(mode: Any) -> None:
    """Put a function mode on this thread's stack, below the program's own.

    A mode of the program takes whatever is on top off the stack when it is left: on top of it, that would be ours.
    `with torch.device(...)` is such a mode, too; but that of `torch.set_default_device` wants to be the lowest.
    """
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    above = []
    while torch._C._len_torch_function_stack():
        top = torch.overrides._pop_mode()
        if top is default:
            torch.overrides._push_mode(top)
            break
        above.append(top)
    torch.overrides._push_mode(mode)
    for entry in reversed(above):
        torch.overrides._push_mode(entry)


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


def remove_mode_soon(mode: Any) -> None:
    """Take the mode off the stack as soon as its handler, from which this is called, has returned.

    While the handler runs torch keeps the mode aside and puts it back afterwards, whatever was done to the stack. The
    next event in the thread comes after that. Where the program profiles the thread itself the mode stays.
    """
    if sys.getprofile() is not None:
        return

    def next_event(frame: FrameType, event: str, argument: Any) -> None:
        if remove_mode(mode) and sys.getprofile() is next_event:
            sys.setprofile(None)

    sys.setprofile(next_event)


def around_rest_of_frame(frame: FrameType, enter: Callable[[], Any], leave: Callable[[Any], None]) -> None:
    """Call `enter()` as soon as it gives something, and `leave(that)` when the frame returns.

    Like `remove_mode_soon`, by the events of the thread; where the program profiles it itself, not at all.
    """
    if sys.getprofile() is not None:
        return
    entered = None

    def next_event(at: FrameType, event: str, argument: Any) -> None:
        nonlocal entered
        if event == "return" and at is frame:
            if sys.getprofile() is next_event:
                sys.setprofile(None)
            if entered is not None:
                leave(entered)
        elif entered is None:
            entered = enter()

    sys.setprofile(next_event)


# -- backward ------------------------------------------------------------------------------------------------------


def in_backward() -> bool:
    """Whether this thread runs a part of a backward pass; never where torch can't tell."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and bool(task() != -1)


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
        if not wanted() or has_mode(mode) or _backward_is_compiled():
            return original(*args, **kwargs)
        push_mode(mode)
        try:
            return original(*args, **kwargs)
        finally:
            remove_mode(mode)

    with replaced(torch.autograd, "_engine_run_backward", run):
        yield True


def _backward_is_compiled() -> bool:
    """Whether `compiled_autograd` will trace the backward pass, with the modes that are on."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return module is not None and bool(getattr(module, "compiled_autograd_enabled", False))


@contextmanager
def around_compiled_backward(enter: Callable[[], Any], leave: Callable[[Any], None]) -> Iterator[bool]:
    """Call `enter()` and `leave(its result)` around the backward of what AOTAutograd compiled, which compiles, too."""
    node = torch.autograd.function.BackwardCFunction
    names = [name for name in ("apply", "apply_boxed") if name in vars(node)]

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any) -> Any:
            if not getattr(self, "_forward_cls", node).__module__.startswith("torch._functorch._aot_autograd"):
                return original(self, *args)
            entered = enter()
            try:
                return original(self, *args)
            finally:
                leave(entered)

        return run

    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(replaced(node, name, wrap(vars(node)[name])))
        yield bool(names)


# -- CUDA graphs ---------------------------------------------------------------------------------------------------


@contextmanager
def around_graph_replays(enter: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[bool]:
    """Replay recorded CUDA graphs within `enter()`: what they run is launched by no operator."""
    original = vars(torch.cuda.CUDAGraph).get("replay")
    if original is None:
        yield False
        return

    def replay(self: Any) -> Any:
        with enter():
            return original(self)

    with replaced(torch.cuda.CUDAGraph, "replay", replay):
        yield True


# -- threads -------------------------------------------------------------------------------------------------------


@contextmanager
def mode_in_new_threads(mode: Any, wanted: Callable[[], bool]) -> Iterator[bool]:
    """Put the mode on in every thread that Python starts from now on.

    Not by `threading.setprofile`, which is the program's to use.
    """
    original = vars(threading.Thread).get("_bootstrap_inner")
    if original is None:
        yield False
        return

    def bootstrap(self: threading.Thread) -> None:
        if wanted():
            push_mode(mode)
        try:
            original(self)
        finally:
            remove_mode(mode)

    with replaced(threading.Thread, "_bootstrap_inner", bootstrap):
        yield True
