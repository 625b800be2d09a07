"""Torch's profiler, started and ended as a recording needs it."""

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from stridewise.recorder import private


def start_profiler(stack: contextlib.ExitStack) -> profile:
    """A running profiler that records shapes, of all threads if it can. It ends with the stack, however far it got."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities, record_shapes=True, experimental_config=private.all_threads_config())
    stack.callback(_stop, profiler)  # an interruption may come at any time
    with _quiet_kineto():
        profiler.start()
    return profiler


def _stop(profiler: profile) -> None:
    if profiler.profiler is not None:
        profiler.stop()


@contextlib.contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Kineto of torch 2.13 prints `USDT:` lines to stderr, unless the environment said so at the first profile."""
    name = "KINETO_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ[name] = "99"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def export(profiler: profile) -> bytes:
    """What an ended profiler recorded, as a Chrome trace. To be called once: a second export raises."""
    with tempfile.TemporaryDirectory(prefix="stridewise-") as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        profiler.profiler = None  # its results hold weak references to the program's tensors
        return Path(path).read_bytes()


def profile_memory(run: Callable[[], object]) -> bytes:
    """The trace of what a call allocates and frees on the CPU. What it returns is held until the profiler has ended."""
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_stop, profiler)
        with _quiet_kineto():
            profiler.start()
        kept = run()
    del kept
    return export(profiler)


def environment() -> dict[str, str]:
    """What a reader of figures must know. No host, no user, no argument, no variable."""
    known = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": str(torch.get_num_threads()),
        "machine": platform.machine(),
        "recorded": time.strftime("%Y-%m-%d"),
    }
    if torch.cuda.is_available():
        known["device"] = torch.cuda.get_device_name()
    return known
