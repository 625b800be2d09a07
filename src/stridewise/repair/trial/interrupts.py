"""Ctrl-C while trials run: it waits for a moment at which the program can be put back whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_waiting = threading.Event()
_given = threading.Event()
"""One was raised already: another that comes while the trials end is for nobody."""


@contextmanager
def held_back() -> Iterator[None]:
    """A Ctrl-C waits for the next `check`, a second one does not.

    Only in the main thread, and only if nobody has a handler of their own.
    """
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def hold(number: int, frame: FrameType | None) -> None:
        if _waiting.is_set():
            signal.default_int_handler(number, frame)
        _waiting.set()

    _waiting.clear()
    _given.clear()
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not _given.is_set():
        check()  # it came too late for the trials, and is for whoever called them


def check() -> None:
    """Raise KeyboardInterrupt if one waits."""
    if _waiting.is_set():
        _waiting.clear()
        _given.set()
        raise KeyboardInterrupt
