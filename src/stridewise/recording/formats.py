"""Which reader a file is for, told by how it begins."""

import os

from stridewise.errors import InputError
from stridewise.recording import kineto, onednn_log
from stridewise.recording.text import Text, opened
from stridewise.recording.trace import Trace

_ENOUGH = 1 << 16
"""Bytes of text in which a log has its first line that tells what it is."""
_SQLITE = b"SQLite format 3\0"
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first, or gzip it."),
    (b"\x80\x04\x95", "a pickle, which is never loaded", "Name the trace that `export_chrome_trace` wrote."),
    (b"NVTXD", "an Nsight Systems report", "Export it: nsys export --type sqlite FILE"),
)


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a recording, a profiler's trace, an Nsight Systems database or a oneDNN log, from a file or URL.

    Raises InputError if it can't be read, or is none of these.
    """
    with opened(path) as stream:
        text = Text(stream, os.fspath(path))
        begun = text.read(_ENOUGH)
        for magic, what, advice in _OTHERS:
            if begun.startswith(magic):
                raise InputError(f"{text.name} is {what}.", advice=advice)
        if begun.startswith(_SQLITE):
            return _load_database(text, begun)
        if onednn_log.is_log(begun):
            return onednn_log.read_text(text, begun)
        return kineto.read_text(text, begun)


def _load_database(text: Text, begun: bytes) -> Trace:
    try:
        from stridewise.recording import nsys
    except ImportError:  # a Python that was built without it can read everything else
        raise InputError(f"{text.name} is a database, which takes Python's sqlite3.") from None
    return nsys.read_text(text, begun)
