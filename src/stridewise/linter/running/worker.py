"""A process that lints files for another: it reads batches of jobs from its input, and writes what came of them.

It imports no more than that takes, and never the program's own script, as processes of multiprocessing would.
"""

import os
import pickle
import signal
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO

from stridewise.linter.running.checking import Checker, Job, collector_paused

_HEAD = struct.Struct(">8sQ")
_MARK = b"sw lint\n"


def write(out: BinaryIO, value: object) -> None:
    """Write one message."""
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)  # not msgpack: names of files may be no UTF-8
    out.write(_HEAD.pack(_MARK, len(content)))
    out.write(content)
    out.flush()


def read(source: BinaryIO) -> object:
    """Read one message. Raises EOFError where there is none, or something else."""
    head = source.read(_HEAD.size)
    mark, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
    content = source.read(size) if mark == _MARK else b""
    if mark != _MARK or len(content) < size:
        raise EOFError
    return pickle.loads(content)


def main() -> None:
    """Answer until nobody asks any more."""
    # The terminal sends Ctrl-C to everyone: whoever asks ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, out = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may stand among the answers
    try:
        checker = read(source)
        assert isinstance(checker, Checker)
        write(out, True)
        with collector_paused(own_process=True) as collect:
            while True:
                write(out, _answer(checker, read(source)))
                collect()
    except (EOFError, BrokenPipeError):
        os._exit(0)  # with nothing to flush, and nobody to tell


def _answer(checker: Checker, batch: object) -> Sequence[object]:
    assert isinstance(batch, list)
    return [checker.check(job) for job in batch if isinstance(job, Job)]
