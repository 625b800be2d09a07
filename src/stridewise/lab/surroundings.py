"""What libraries that experiments use put into a process, and leave there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def as_found() -> Iterator[None]:
    """Variables of the environment are as before afterwards, and the thread that watches tqdm's bars is ended.

    Modules that were imported stay, with the threads of their native code: Python can't take them back.
    """
    environ, watched = dict(os.environ), _watcher() is not None
    try:
        yield
    finally:
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        os.environ.update(environ)
        if not watched:
            _end_watcher()


def _watcher() -> Any:
    """The thread, which tqdm starts with the first bar, even one that is not shown."""
    return getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "monitor", None)


def _end_watcher() -> None:
    watcher = _watcher()
    if watcher is not None:
        watcher.exit()
        sys.modules["tqdm"].tqdm.monitor = None  # the next bar starts another
