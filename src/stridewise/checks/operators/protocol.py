"""What goes over the pipes between a process and the child in which an operator runs: messages, whole or not at all."""

import os
import struct

_HEAD = struct.Struct("<4sQ")
_MARK = b"SWop"
_LONGEST = 1 << 28
HEAD_BYTES = _HEAD.size

DESCRIBE, KNOWN, RUN, EXECUTE, QUESTION = b"d", b"k", b"r", b"x", b"q"
"""The first byte of a request: describe the operator; how it was described before; run a case; execute a program; what
only probes of some kinds answer."""
READY, ANSWER, FAILED, LEFT, DEFECT = b"y", b"a", b"f", b"l", b"!"
"""The first byte of an answer. `LEFT`: it raised what ends a program. `DEFECT`: one of ours, with its traceback."""

DONE, LOST = 0, 113
"""Exit codes of the child: it was no longer needed; the operator closed its pipes."""


class Garbled(Exception):
    """Somebody else wrote into the pipe."""


def send(end: int, message: bytes) -> None:
    """Write a message to a pipe."""
    data = memoryview(_HEAD.pack(_MARK, len(message)) + message)
    while data:
        data = data[os.write(end, data) :]


def length_of(head: bytes) -> int:
    """Bytes of the message behind a head. Raises Garbled if it is none."""
    mark, length = _HEAD.unpack(head)
    if mark != _MARK or length > _LONGEST:
        raise Garbled
    return int(length)


def receive(end: int) -> bytes | None:
    """Wait for a message from a pipe; None if it was closed."""
    head = _exactly(end, HEAD_BYTES)
    return None if head is None else _exactly(end, length_of(head))


def _exactly(end: int, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = os.read(end, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
