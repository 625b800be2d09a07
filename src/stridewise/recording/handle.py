"""A recording in the hands of the person who made it or loaded it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TYPE_CHECKING, ClassVar

from stridewise.errors import InputError, RecordingError
from stridewise.recording import kineto
from stridewise.recording.formats import load_trace
from stridewise.recording.rewrite import rewrite
from stridewise.recording.text import Text, is_url, opened
from stridewise.recording.trace import Trace

if TYPE_CHECKING:
    from stridewise.recording.arrow import ArrowTables


class Recording:
    """A profiler trace with a call log in it: save it, load it, hand it to `analyze`.

    While it is being made it is empty; `step()` says that a step of the program ends.
    """

    tables: ClassVar[Callable[[Recording], ArrowTables]]
    """Makes the tables of `to_arrow`. `stridewise.api` puts it here: copies are what the analysis finds."""

    def __init__(self, content: bytes | None = None, name: str = "recording") -> None:
        self.name = name
        self.on_step: Callable[[], None] | None = None
        """What `step` does while the recording is being made."""
        self._content = content
        self._path: str | None = None
        self._trace: Trace | None = None
        self._failure: Exception | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording, trace or log from a file or URL. Raises InputError if there is none, or it can't be read.

        Its text is not kept: `save` reads the file again.
        """
        recording = cls(name=os.fspath(path))
        recording._path = os.fspath(path)
        recording._trace = load_trace(path)
        return recording

    @property
    def trace(self) -> Trace:
        """The recording, read; raises RecordingError while it is still being made."""
        if self._trace is None:
            self._trace = kineto.read(self._finished("Use"), self.name)
        return self._trace

    def _finished(self, verb: str) -> bytes:
        if self._failure is not None:
            raise self._failure
        if self._content is None:
            raise RecordingError(
                f"The {self.name} is not finished.", advice=f"{verb} it after the `with record()` block has ended."
            )
        return self._content

    def save(self, path: str | os.PathLike[str], added: Iterable[bytes] = ()) -> None:
        """Write it to a file, gzipped if the name ends in `.gz`. What the profiler knows of the machine stays out.

        `added` are more events for it, as JSON. The file appears whole or not at all. Raises InputError where it can't
        be written.
        """
        if self._trace is not None and self._trace.format != "profiler":
            raise InputError(f"{self.name} is no trace of the profiler.", advice="Only these can be written.")
        if self._path is not None and not is_url(self._path) and not os.path.isfile(self._path):
            raise InputError(f"{self.name} is a pipe, which can be read but once.", advice="Name a file.")
        if self._path is not None and _is_same_file(self._path, path):
            raise InputError(f"{self.name} would take its own place.", advice="Choose another file.")
        if self._path is None:
            rewrite(Text(BytesIO(self._finished("Save")), self.name), path, added)
            return
        with opened(self._path) as stream:
            rewrite(Text(stream, self.name), path, added)

    def to_arrow(self) -> ArrowTables:
        """Its copies, calls and operators as `pyarrow.Table`s, whose columns docs/reference/arrow.md lists.

        What was not measured is null. Raises UsageError without pyarrow: pip install "stridewise[arrow]".
        """
        return type(self).tables(self)

    def step(self) -> None:
        """Say that a step of the program ends here: it overrides the steps that stridewise would find."""
        if self.on_step is not None:
            self.on_step()

    def finish(self, content: bytes) -> None:
        """The recorder's last act: hand over what was recorded."""
        self._content = content

    def fail(self, error: Exception) -> None:
        """Or what kept it from doing so: raised again to whoever asks for the recording."""
        self._failure = error

    def __repr__(self) -> str:
        if self._content is not None:
            return f"<stridewise recording {self.name}: {len(self._content):,} bytes>"
        return f"<stridewise recording {self.name}{': being made' if self._trace is None else ''}>"


def _is_same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    return os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)
