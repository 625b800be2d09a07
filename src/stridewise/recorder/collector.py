"""Python's garbage collector, while one step is measured."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 2**31 - 1


@contextmanager
def full_collections_wait() -> Iterator[None]:
    """No full collection that nobody asked for: it takes hundreds of milliseconds, and would pass for the step's own.

    By the threshold, as a program that calls `gc.disable()` meanwhile has to find it so afterwards; a threshold that it
    sets stays too. Young objects are collected as ever: that is quick, and memory stays bounded if a step never ends.
    """
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], _NEVER)
    waiting = gc.get_threshold()
    try:
        yield
    finally:
        if gc.get_threshold() == waiting:
            gc.set_threshold(*before)
