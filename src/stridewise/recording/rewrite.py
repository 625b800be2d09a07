"""Writes a trace anew: its events as they stand, more of them if wanted, and no metadata but what readers need."""

import gzip
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Raw, Struct

from stridewise.errors import InputError
from stridewise.recording.kineto import rank_of
from stridewise.recording.pieces import UNREADABLE, Keys, Pieces
from stridewise.recording.text import Text

MARKS = 1_398_033_741
"""The process that marks stand under; any number that no process has."""


def rewrite(text: Text, path: str | os.PathLike[str], added: Iterable[bytes] = ()) -> None:
    """Write a trace's text to a file, gzipped if its name ends in `.gz`, with more events (as JSON) at its end.

    The file appears whole or not at all. Raises InputError where it can't be written, or where the text is no trace.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    zipped = Path(path).suffix == ".gz"
    partial = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():  # a device or a pipe is written to, not replaced
            with target.open("wb") as out:
                _write(text, out, zipped, added)
            return
        try:
            with partial.open("xb") as out:
                _write(text, out, zipped, added)
            partial.replace(target)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None


def _write(text: Text, out: IO[bytes], zipped: bool, added: Iterable[bytes]) -> None:
    if not zipped:
        _write_events(text, out, added)
        return
    with gzip.GzipFile("", "wb", 5, out, mtime=0) as zipping:
        _write_events(text, zipping, added)  # type: ignore[arg-type]


def _write_events(text: Text, out: IO[bytes], added: Iterable[bytes]) -> None:
    pieces: Pieces[Raw] = Pieces(text, Raw)
    comma = b""
    out.write(b'{"traceEvents":[')
    for piece in pieces:
        events = _without_marks(bytes(piece).strip()[1:-1].strip())
        if events:
            out.write(comma + events)
            comma = b","
    for event in added:
        out.write(comma + event)
        comma = b","
    out.write(b"]")
    for key, value in _kept(pieces.keys).items():
        out.write(b',"%s":%s' % (key.encode(), value))
    out.write(b"}")


def _without_marks(events: bytes) -> bytes:
    """Events without the marks that an earlier rewriting put there."""
    mark = b'{"pid":%d,' % MARKS
    if mark not in events:
        return events
    kept = (bytes(event) for event in msgspec.json.decode(b"[%s]" % events, type=list[Raw]))
    return b",".join(event for event in kept if not event.lstrip().startswith(mark))


class _Device(Struct, omit_defaults=True, rename="camel"):
    """What is kept of a device's properties."""

    id: int | None = None
    name: str | None = None
    total_global_mem: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    max_threads_per_block: int | None = None
    warp_size: int | None = None
    num_sms: int | None = None


def _kept(keys: Keys) -> dict[str, bytes]:
    kept = {"stridewise": bytes(keys.log)}
    for name, value, kind in (
        ("schemaVersion", keys.schema_version, int),
        ("record_shapes", keys.record_shapes, int | bool),
        ("with_stack", keys.with_stack, int | bool),
        ("displayTimeUnit", keys.unit, Literal["ms", "ns"]),
        ("deviceProperties", keys.device_properties, list[_Device]),
    ):
        with suppress(*UNREADABLE):
            kept[name] = msgspec.json.encode(msgspec.json.decode(value, type=kind)) if value else b""
    kept["distributedInfo"] = b"" if (rank := rank_of(keys)) is None else b'{"rank":%d}' % rank
    kept["baseTimeNanoseconds"] = b"%d" % keys.base_ns if keys.base_ns else b""
    return {key: value for key, value in kept.items() if value}
