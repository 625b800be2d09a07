"""What recording touches of `torch.compile`, which must not see a function mode or a module hook of ours."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from stridewise.recorder.imports import WhenImported

SET_CALLBACK = "_maybe_set_eval_frame"
"""Dynamo's function that is called on the way into and out of a compiled callable."""

Enter = Callable[[FrameType], Any]
Leave = Callable[[Any], None]


@contextlib.contextmanager
def around_compiled_regions(
    enter: Enter, trace: Callable[[], Any], leave: Leave, missing: Callable[[], None]
) -> "Iterator[Regions]":
    """Call `enter(frame)` when a `torch.compile`d callable is entered and `leave(its result)` when it is left.

    A function mode or global module hooks that Dynamo sees get traced, guarded on, or break it. Tracing for export
    and by `torch.jit` enters no such callable: `trace()` is called before it. Both may give None: there is nothing to
    leave then. `missing()` is called once Dynamo is loaded if this version of it can't be watched.
    """
    with contextlib.ExitStack() as stack:
        regions = Regions(enter, trace, leave, missing)
        for name, patch in (
            ("torch._dynamo.eval_frame", regions.patch_eval_frame),
            ("torch._dynamo.functional_export", regions.patch_export),
            ("torch.jit._trace", regions.patch_trace),
        ):
            if name in sys.modules:
                patch(sys.modules[name])
            else:  # importing it takes a second and much memory: only when the program does
                importing = WhenImported(name, patch)
                sys.meta_path.insert(0, importing)
                stack.callback(importing.withdraw)
        stack.callback(regions.unpatch)
        yield regions


class Regions:
    """The compiled regions that are running, each known by the frame of its wrapper."""

    def __init__(self, enter: Enter, trace: Callable[[], Any], leave: Leave, missing: Callable[[], None]) -> None:
        self.enter = enter
        self.trace = trace
        self.leave = leave
        self.missing = missing
        self.local = threading.local()
        self.patched: list[tuple[Any, str, Any, Any]] = []

    def enter_running(self) -> None:
        """Enter the region that the caller is in already, as something that Dynamo does not compile."""
        outermost = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if _is_compile_wrapper(frame.f_code):
                outermost = frame
            frame = frame.f_back
        if outermost is not None and (entered := self.trace()) is not None:
            self.local.__dict__.setdefault("regions", []).append((id(outermost), entered))

    def patch_eval_frame(self, module: Any) -> None:
        """Dynamo's wrapper sets the frame evaluation callback on entry, and the prior one at the end, by one function.

        Wrappers of `torch._dynamo.disable` call that function, too: hence the look at the frame's code.
        """
        original = getattr(module, SET_CALLBACK, None)
        if original is None:
            self.missing()
            return

        def set_callback(callback: Any) -> Any:
            frame = sys._getframe(1)
            regions: list[tuple[int, Any]] = self.local.__dict__.setdefault("regions", [])
            if regions and regions[-1][0] == id(frame):
                original(None)  # else Dynamo looks at what runs from here on
                self.leave(regions.pop()[1])
            elif callable(callback) and _is_compile_wrapper(frame.f_code):
                self._leave_stale(regions, frame)
                entered = self.enter(frame)
                if entered is not None:
                    regions.append((id(frame), entered))
            return original(callback)

        _hide_from_dynamo(module, set_callback.__code__)
        self._replace(module, SET_CALLBACK, original, set_callback)

    def patch_export(self, module: Any) -> None:
        """`torch.export.export(strict=True)` takes a function that traces from one of these."""
        for name in ("_dynamo_graph_capture_for_export", "dynamo_graph_capture_for_export"):
            original = getattr(module, name, None)
            if original is not None:
                self._replace(module, name, original, self._giving_traced(original))

    def patch_trace(self, module: Any) -> None:
        """`torch.jit.trace` names values and places after the frames that it sees."""
        for name in ("_trace_impl", "trace_module"):
            original = getattr(module, name, None)
            if original is not None:
                self._replace(module, name, original, self._traced(original))

    def _giving_traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def give(*args: Any, **kwargs: Any) -> Any:
            return self._traced(original(*args, **kwargs))

        return give

    def _traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            entered = self.trace()
            try:
                return original(*args, **kwargs)
            finally:
                if entered is not None:
                    self.leave(entered)

        return run

    def _leave_stale(self, regions: list[tuple[int, Any]], frame: FrameType | None) -> None:
        """A wrapper that gave up before it ran anything called the function once, at its end: that was no entry."""
        if not regions:
            return
        running = set()
        while frame is not None:
            running.add(id(frame))
            frame = frame.f_back
        while regions and regions[-1][0] not in running:
            self.leave(regions.pop()[1])

    def _replace(self, module: Any, name: str, original: Any, replacement: Any) -> None:
        setattr(module, name, replacement)
        self.patched.append((module, name, original, replacement))

    def unpatch(self) -> None:
        """Put Dynamo's own functions back."""
        for module, name, original, replacement in self.patched:
            if getattr(module, name, None) is replacement:
                setattr(module, name, original)


def _hide_from_dynamo(module: Any, code: CodeType) -> None:
    """Have Dynamo run it as it is. Where a stance forbids to compile, torch 2.6 raises at frames that are new to it."""
    skip = getattr(module, "skip_code", None)
    if skip is not None:
        skip(code)


def _is_compile_wrapper(code: CodeType) -> bool:
    return code.co_qualname.startswith("_TorchDynamoContext.__call__.")
