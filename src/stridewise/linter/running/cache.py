"""What the rules said of files before, by what the files held: a run looks again only at what has changed.

It is a convenience and nothing more. A cache that is corrupt, that another version wrote, or that can't be written is
as good as none; runs at the same time replace each other's file as a whole.
"""

import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from stridewise import __version__
from stridewise.findings import Finding

FOLDER = ".stridewise_cache"
_MAGIC = b"stridewise lint cache 1\n"
_DIGEST_SIZE = 16
_READ_BY = ("source", "results", "linter")
"""The packages whose sources decide what is found, besides the modules beside them."""
_DAYS = 30
"""How long an entry stays that no run asked for."""
_MOST_ENTRIES = 100_000
_MOST_BYTES = 1 << 20
"""Of one entry: what generated files give may be large, and is as well found again."""
_MOST_IN_ALL = 1 << 29
"""Of the whole file: one that is larger did not come from here."""
_MOST_FILES = 6
"""Each version of Python and of stridewise has a file."""
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# https://bford.info/cachedir/\n"


class Known(Struct, frozen=True, array_like=True):
    """What is known of a file that was linted."""

    lines: int
    findings: tuple[Finding, ...]
    suppressed: int
    stale: int = 0


class _Entry(Struct, array_like=True):
    digest: bytes
    """Of the content."""
    day: int
    """When a run last asked for it, in days since 1970."""
    known: Raw


_entries = msgspec.msgpack.Decoder(dict[str, _Entry])
_known = msgspec.msgpack.Decoder(Known)
_encoder = msgspec.msgpack.Encoder()


class Cache:
    """The entries of one folder. Without a folder it holds nothing, and keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._file = None if folder is None else folder / f"lint-{_tool()}.msgpack"
        self._entries = {} if self._file is None else _read(self._file)
        self._day = int(time.time() // 86_400)
        self._changed = False

    def get(self, key: str, digest: bytes) -> Known | None:
        """What is known under a key, if it is of content with that digest."""
        entry = self._entries.get(key)
        if entry is None or entry.digest != digest:
            return None
        try:
            known = _known.decode(entry.known)
        except (msgspec.DecodeError, ValueError):
            return None
        if entry.day != self._day:
            entry.day, self._changed = self._day, True
        return known

    def put(self, key: str, digest: bytes, known: Known) -> None:
        """Keep what is known of content, in the place of what was known under that key."""
        if self._file is None:
            return
        try:
            key.encode()
            encoded = _encoder.encode(known)
        except UnicodeEncodeError:  # a file name that is not UTF-8
            return
        if len(encoded) <= _MOST_BYTES:
            self._entries[key] = _Entry(digest, self._day, Raw(encoded))
            self._changed = True

    def save(self) -> None:
        """Write it, if anything is new; a folder that can't be written is left as it is."""
        if self._folder is None or self._file is None or not self._changed:
            return
        recent = sorted(
            (item for item in self._entries.items() if self._day - item[1].day <= _DAYS),
            key=lambda item: -item[1].day,
        )
        payload = _encoder.encode(dict(recent[:_MOST_ENTRIES]))
        if len(payload) > _MOST_IN_ALL - len(_MAGIC) - _DIGEST_SIZE:
            return
        with suppress(OSError):
            _make(self._folder)
            _replace(self._file, _MAGIC + _digest(payload) + payload)
            _drop_others(self._file)
        self._changed = False


def key_of(name: str, codes: Collection[str], *facts: str) -> str:
    """A name for what is known of a file: by its name, the rules that ran, and whatever else it depends on."""
    settings = _hex("\0".join((*sorted(codes), "", *facts)).encode())
    return f"{settings}:{name}"


def digest_of(content: bytes) -> bytes:
    """A name for the content of a file."""
    return hashlib.sha256(content).digest()[:_DIGEST_SIZE]


def _read(file: Path) -> dict[str, _Entry]:
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # a pipe is not waited for
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST_IN_ALL:
                return {}
            content = stream.read()
        payload = content[len(_MAGIC) + _DIGEST_SIZE :]
        if content[: len(_MAGIC) + _DIGEST_SIZE] != _MAGIC + _digest(payload):
            return {}
        return _entries.decode(payload)
    except (OSError, ValueError, msgspec.DecodeError, RecursionError, MemoryError):
        return {}


def _make(folder: Path) -> None:
    """Make the folder, marked as a cache that git and backups leave out; one that is there is left as it is."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    (folder / ".gitignore").write_bytes(b"*\n")
    (folder / "CACHEDIR.TAG").write_bytes(_TAG)


def _replace(file: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".lint-", suffix=".tmp")
    try:
        with open(handle, "wb") as out:
            out.write(content)
        os.replace(temporary, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _drop_others(file: Path) -> None:
    """Remove what other versions of stridewise and Python left, but for the latest."""
    others = sorted(
        (other for other in file.parent.glob("lint-*.msgpack") if other != file),
        key=lambda other: other.stat().st_mtime,
        reverse=True,
    )
    for other in others[_MOST_FILES - 1 :]:
        other.unlink(missing_ok=True)


def _tool() -> str:
    """A name for what reads and judges: this Python, and this stridewise with the state of its sources.

    A version number alone would not tell an edited checkout from what it was before.
    """
    parts = [__version__, sys.implementation.name, *map(str, sys.version_info)]
    package = Path(__file__).parents[2]
    for path in sorted(
        (*package.glob("*.py"), *(file for part in _READ_BY for file in (package / part).rglob("*.py")))
    ):
        with suppress(OSError):
            state = path.stat()
            parts.append(f"{path.name} {state.st_size} {state.st_mtime_ns}")
    return _hex("\0".join(parts).encode())


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_SIZE).digest()


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
