"""A recording in the hands of the person who made it or loaded it."""

from __future__ import annotations

import gzip
import os
import tempfile
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
        target = Path(path)
        if target.suffix == ".gz":
            content = gzip.compress(content, 5)
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as partial:
                try:
                    partial.write(content)
                    partial.close()
                    os.chmod(partial.name, 0o666 & ~_umask())
                    os.replace(partial.name, target)
                except BaseException:
                    os.unlink(partial.name)
                    raise
        except OSError as error:
            raise InputError(
                f"{target} can't be written: {error.strerror or error}.", advice="Choose another file."
            ) from None

    def step(self) -> None:
        """Say that a step of the program ends here: it overrides the steps that stridewise would find."""
        from stridewise.recording import live

        live.step()

    def finish(self, content: bytes) -> None:
        """The recorder's last act: hand over what was recorded."""
        self._content = content

    def fail(self, error: Exception) -> None:
        """Or what kept it from doing so: raised again to whoever asks for the recording."""
        self._failure = error

    def __repr__(self) -> str:
        state = "being made" if self._content is None else f"{len(self._content):,} bytes"
        return f"<stridewise recording {self.name}: {state}>"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
