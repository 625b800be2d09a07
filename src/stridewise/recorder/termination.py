"""SIGTERM while a script is recorded: what there is of the recording is kept, and the process ends as it would.

A launcher sends it to all ranks when one of them dies, and then the recordings of the others tell what happened.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class Termination:
    """Catches SIGTERM where the program does not: acts, and then lets the signal end the process after all."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.pending = False
        """It came while it was held back."""
        self.ending = False
        """It came, and what is to be done is being done."""
        self._act = act
        self._held = 0

    def install(self) -> None:
        """From now on, unless the program or whoever started it wants something else, or this is no main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._arrived)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)

    def hold(self) -> None:
        """Something begins that must not be broken off."""
        self._held += 1

    def release(self) -> None:
        """It is done."""
        self._held -= 1
        if self.pending and not self._held:
            self._end()

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self.pending = True
        else:
            self._end()

    def _end(self) -> None:
        self._held += 1
        self.ending = True
        try:
            self._act()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _forked(self) -> None:
        """A child, such as a data loader's worker, ends at once: it may wait in C code, where no handler would run."""
        if signal.getsignal(signal.SIGTERM) == self._arrived:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
