"""A recording in the hands of the person who made it or loaded it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

from stridewise.errors import InputError, RecordingError
from stridewise.recording import kineto
from stridewise.recording.model import Trace


class Recording:
    """A profiler trace with a call log in it: save it, load it, hand it to `analyze`.

    While it is being made it is empty; `step()` says that a step of the program ends.
    """

    def __init__(self, content: bytes | None = None, name: str = "recording") -> None:
        self.name = name
        self.on_step: Callable[[], None] | None = None
        """What `step` does while the recording is being made."""
        self._content = content
        self._trace: Trace | None = None
        self._failure: Exception | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a file. Raises InputError if there is none, or it can't be read, or it is no trace."""
        recording = cls(kineto.read_bytes(Path(path)), os.fspath(path))
        recording.trace  # noqa: B018  (a file that is no trace is said so here, not at first use)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, gzipped if the name ends in `.gz`. What the profiler knows of the machine stays out.

        The file appears whole or not at all. Raises InputError where it can't be written.
        """
        content = kineto.without_private_metadata(self._finished("Save"), self.name)
        if Path(path).suffix == ".gz":
            content = gzip.compress(content, 5)
        target = Path(os.path.realpath(path))  # a link stays one
        partial = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
        try:
            if target.exists() and not target.is_file():  # a device or a pipe is written to, not replaced
                target.write_bytes(content)
                return
            try:
                with partial.open("xb") as out:
                    out.write(content)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"{target} can't be written: {error.strerror or error}.", advice="Choose another file."
            ) from None

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
        state = "being made" if self._content is None else f"{len(self._content):,} bytes"
        return f"<stridewise recording {self.name}: {state}>"
