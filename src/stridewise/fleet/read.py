"""Reading many files: in this process, in processes of this machine, or on a Dask cluster."""

import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from stridewise.analysis.summary import Summary, merge
from stridewise.errors import UsageError
from stridewise.fleet.files import shown_names
from stridewise.fleet.work import Options, decode, summarize_file
from stridewise.recording.text import is_url

MANY = 8
"""From so many files on they are read in several processes, unless they are small."""
_SMALL = 30_000_000
"""Bytes of files, together, that are read here before processes have started."""
_AT_ONCE = 64
"""Summaries that are merged together: as many are kept, whatever the number of files."""

_ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:[\w.-]+|\[[0-9a-fA-F:.%\w]+\]):\d{1,5}/?")

_HINT = "The files were read one after another: pip install 'stridewise[fleet]' reads several at once."

Progress = Callable[[int], object]
"""Called with the number of files that have been read."""


def read_fleet(
    files: Sequence[str],
    options: Options,
    *,
    cluster: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Summary, tuple[str, ...]]:
    """The summary of all files, and notes on how they were read.

    `cluster` is the address of a Dask scheduler, or a `distributed.Client`; without one, `workers` is the number of
    processes on this machine (1: this one). Raises UsageError if the cluster can't be reached or is lost.
    """
    encoded = msgspec.json.encode(options)
    # A worker of a cluster runs in another folder.
    tasks = [
        (file if is_url(file) else os.path.abspath(file), name, encoded)
        for file, name in zip(files, shown_names(files), strict=True)
    ]
    # What is in this process's memory is in no other's.
    here = [task for task in tasks if task[0].startswith("memory://")]
    there = [task for task in tasks if not task[0].startswith("memory://")]
    notes: tuple[str, ...] = ()
    if cluster is None:
        count = _workers(there, workers)
        if count > 1 and not _has_dask():
            if workers is not None:
                raise UsageError("--workers takes Dask", advice="pip install 'stridewise[fleet]'")
            notes, count = (_HINT,), 1
        if count == 1:
            here, there = tasks, []
    elif isinstance(cluster, str) and not _ADDRESS.fullmatch(cluster):
        # Dask's client would hang on what it can't parse.
        raise UsageError(f"`{cluster}` is no address of a Dask scheduler, such as tcp://HOST:8786")
    elif not _has_dask():
        raise UsageError("a cluster takes Dask", advice="pip install 'stridewise[fleet]'")
    answers = _answers(here, there, cluster, 0 if cluster is not None else count)
    summary = _merged(answers, progress)
    assert len(summary.rows) + len(summary.failures) == len(tasks), "a file was lost on the way"
    return summary, notes


def _answers(
    here: Sequence[tuple[str, str, bytes]], there: Sequence[tuple[str, str, bytes]], cluster: Any, workers: int
) -> Generator[bytes, None, None]:
    for task in here:
        yield summarize_file(*task)
    if there:
        # Imports Dask, which is optional and takes a second.
        from stridewise.fleet.cluster import on_cluster, on_this_machine

        yield from on_cluster(there, cluster) if workers == 0 else on_this_machine(there, workers)


def _merged(answers: Generator[bytes, None, None], progress: Progress | None) -> Summary:
    together = Summary()
    waiting: list[Summary] = []
    # Closed at once when it is left early, by Control-C perhaps: processes end with it.
    with closing(answers):
        for number, answer in enumerate(answers, 1):
            waiting.append(decode(answer))
            if len(waiting) == _AT_ONCE:
                together, waiting = merge((together, *waiting)), []
            if progress is not None:
                progress(number)
    return merge((together, *waiting))


def _workers(tasks: Sequence[tuple[str, str, bytes]], wanted: int | None) -> int:
    if wanted is not None:
        return max(1, min(wanted, len(tasks), _MOST_PER_CORE * _cores()))
    if len(tasks) < MANY or sum(map(_size, (task[0] for task in tasks))) < _SMALL:
        return 1
    return min(_cores(), len(tasks), max(1, _memory() // _LEAST_MEMORY))


_MOST_PER_CORE = 4
"""Processes that are started when more are asked for."""
_LEAST_MEMORY = 2 * 10**9
"""Bytes for each process: a trace of a million operators takes half of it."""


def _size(path: str) -> int:
    """Of a file; one behind a URL counts as large, and one that is not there as nothing."""
    if is_url(path):
        return _SMALL
    with suppress(OSError):
        return Path(path).stat().st_size
    return 0


def _cores() -> int:
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    if not _has_dask():
        return _LEAST_MEMORY * _cores()
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)


def _has_dask() -> bool:
    # Dask works without cryptography, but then cannot keep other users of this machine out.
    return find_spec("distributed") is not None and find_spec("cryptography") is not None
