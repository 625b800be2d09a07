"""What is logged as one call, whatever runs inside: compiled regions, tracing for export, replays of CUDA graphs."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from stridewise.recorder import private
from stridewise.recorder.calls import CallRecorder
from stridewise.recorder.compiler import Regions, around_compiled_regions
from stridewise.recorder.modules import ModuleRecorder


@contextlib.contextmanager
def opaque_regions(calls: CallRecorder, modules: ModuleRecorder, unknown: Callable[[], None]) -> Iterator[Regions]:
    """Log them so inside the body. `unknown()` is called if this version of torch.compile can't be watched."""

    def enter_compiled(frame: FrameType) -> Any:
        if not private.has_mode(calls):
            return None
        return _hide_hooks(modules), calls.enter_compiled_region(frame.f_back or frame)

    def enter_aside() -> Any:
        """Tracing for export; the backward of a compiled region, whose operators belong to the call of the region."""
        if not calls.hide():
            return None
        return _hide_hooks(modules), contextlib.nullcontext()

    def enter_replay() -> contextlib.AbstractContextManager[None]:
        if not calls.on or not private.has_mode(calls):
            return contextlib.nullcontext()
        return calls.open_call(calls.function_named("torch.cuda.CUDAGraph.replay"), sys._getframe(2))

    def leave(entered: Any) -> None:
        if entered is not None:
            hooks, mark = entered
            calls.leave_compiled_region(mark)
            hooks.close()

    with (
        around_compiled_regions(enter_compiled, enter_aside, leave, unknown) as regions,
        private.around_compiled_backward(enter_aside, leave),
        private.around_graph_replays(enter_replay),
    ):
        yield regions


def _hide_hooks(modules: ModuleRecorder) -> contextlib.ExitStack:
    hooks = contextlib.ExitStack()
    hooks.enter_context(modules.uninstalled())
    return hooks
