"""Threads that are at work on something of their own when a recording begins."""

import os
import sys
import threading
from types import FrameType

_WAITING_IN = tuple(
    os.path.join(*parts) for parts in (("concurrent", "futures", "thread.py"), ("multiprocessing", "pool.py"))
)
"""Where the threads of a pool wait for work, which is then that of whoever gives it to them."""


def busy_threads() -> list[int]:
    """The system's numbers of all other threads that Python started and that don't wait in a pool or at a queue."""
    frames = sys._current_frames()
    own = threading.get_ident()
    return [
        thread.native_id
        for thread in threading.enumerate()
        if thread.ident != own
        and thread.native_id is not None
        and not isinstance(thread, threading._DummyThread)  # of C++: autograd's own
        and not _waits(frames.get(thread.ident or 0))
    ]


def _waits(frame: FrameType | None) -> bool:
    """Whether a thread waits for work: in `Queue.get`, or in a pool, which has its queues in C."""
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    if frame is None:
        return False
    name, code = frame.f_code.co_filename, frame.f_code
    return name.endswith(_WAITING_IN) or (os.path.basename(name) == "queue.py" and code.co_name == "get")
