"""What is on between `start()` and `stop()`, or inside `with`, and puts something of torch's aside meanwhile."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, ClassVar, Self

from stridewise.errors import UsageError

_lock = threading.RLock()


class Switch:
    """A guard of this process. While any of a class is on, what the class wraps stays wrapped."""

    started: ClassVar[list[Any]]
    """Those of the class that are on, in all threads, in the order in which they were started."""

    def start(self) -> Self:
        """Start guarding; what is made from now on is guarded too."""
        with _lock:
            if self in self.started:
                raise UsageError("This guard is on already.")
            self.started.append(self)
            self._install()
        return self

    def stop(self) -> None:
        """Stop guarding: torch's classes are again what they were. Of no effect when it is off."""
        with _lock:
            if self in self.started:
                self.started.remove(self)
            if not self.started:
                self._remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _install(self) -> None:
        """Wrap what is wrapped for the class, unless it is."""
        raise NotImplementedError

    def _remove(self) -> None:
        """Put back what is wrapped, if anything is."""
        raise NotImplementedError
