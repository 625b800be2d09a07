"""The text of a trace: read from a file or a URL, and unzipped."""

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from stridewise.errors import InputError

_zlib: Any = zlib
with suppress(ImportError):
    from isal import isal_zlib as _zlib

MOST_TEXT = 64_000_000_000
"""Bytes of text after which a file is taken for a trap: 64 GB."""

MOST_RATIO = 100
"""To how many times its size a file may unpack; traces do 10 to 40 times."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_HARMLESS = 100_000_000
"""Bytes of text up to which a file may unpack to more."""
_READ = 4_000_000
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DAMAGED: Any = (zlib.error, getattr(_zlib, "error", zlib.error), EOFError)


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a name is one that fsspec opens, such as `s3://bucket/rank0.json.gz`."""
    return _URL.match(os.fspath(path)) is not None


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file or URL, open for reading. Raises InputError where it can't be read."""
    name = os.fspath(path)
    try:
        stream = _open_url(name) if is_url(name) else Path(path).open("rb")  # noqa: SIM115
    except FileNotFoundError:
        raise InputError(f"{name} does not exist.", advice="Name a recording or a trace.") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a folder.", advice="Name a recording or a trace in it.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}.") from None
    with stream:
        yield stream


def _open_url(url: str) -> BinaryIO:
    try:
        import fsspec
    except ImportError:
        raise InputError(f"{url} is a URL, which takes fsspec.", advice="pip install 'stridewise[fleet]'") from None
    try:
        return cast(BinaryIO, fsspec.open(url, "rb").open())
    except FileNotFoundError:
        raise
    except Exception as error:  # every store has errors of its own
        raise InputError(f"{url} can't be read: {type(error).__name__}: {error}.") from None


class Text:
    """A stream's text, unzipped if it is gzip, a number of bytes at a time."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.broken: str | None = None
        """Why the text ends before its file meant it to."""
        self._stream = stream
        self._taken = 0
        self.total = 0
        """Bytes that were read so far, unzipped."""
        self._pending = self._take(_READ)
        self._inflate: Any = _zlib.decompressobj(wbits=31) if self._pending.startswith(_GZIP) else None

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end."""
        parts = []
        missing = size
        while missing > 0 and (part := self._next(missing)):
            parts.append(part)
            missing -= len(part)
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        if not self.total:
            content = content.removeprefix(_BOM)
        self.total += size - missing
        if self.total > MOST_TEXT:
            raise InputError(f"{self.name} holds more than {MOST_TEXT // 10**9} GB of text.")
        if self.total > max(_HARMLESS, MOST_RATIO * self._taken):
            raise InputError(f"{self.name} unpacks to more than {MOST_RATIO} times its size, as no trace does.")
        return content

    def _next(self, most: int) -> bytes:
        if self._inflate is None:
            part, self._pending = self._pending[:most], self._pending[most:]
            return part or self._take(most)
        while self.broken is None:
            if self._inflate.eof:
                rest = (self._inflate.unused_data or self._take(_READ)).lstrip(b"\0")
                if not rest.startswith(_GZIP):  # the end, or rubbish behind it
                    return b""
                self._inflate, self._pending = _zlib.decompressobj(wbits=31), rest
            data = self._pending or self._take(_READ)
            if not data and not self._inflate.eof:
                self.broken = "its gzip ends too early"
                return b""
            try:
                part = cast(bytes, self._inflate.decompress(data, most))
            except _DAMAGED:
                self.broken = "its gzip is damaged"
                return b""
            self._pending = self._inflate.unconsumed_tail
            if part:
                return part
        return b""

    def _take(self, most: int) -> bytes:
        try:
            taken = self._stream.read(most)
        except (OSError, ValueError) as error:
            message = f"{self.name} can't be read: {getattr(error, 'strerror', None) or error}."
            raise InputError(message) from None
        self._taken += len(taken)
        return taken
