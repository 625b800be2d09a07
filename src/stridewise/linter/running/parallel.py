"""Files linted in several processes at once, where there is enough of them.

The processes are programs of their own (`worker`) that import stridewise and nothing else: whoever calls this from a
script, with threads or not, under `if __name__ == "__main__":` or not, has nothing run twice.
"""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, cast

from stridewise.linter.running import worker
from stridewise.linter.running.checking import Checker, Job, Outcome, collector_paused

_WORTH_BYTES = 1 << 20
"""Of source for each process: one takes as long to start as half of that takes to lint."""
_BATCH_BYTES = 1 << 18
_COLLECT_BYTES = 1 << 24
_DIED = "the process that read it was ended from outside, perhaps because it took more memory than there is"
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from stridewise.linter.running.worker import main; main()"

Answer = tuple[Job, Outcome]
_Message = tuple[list[Job], list[Outcome] | None] | None
"""A batch and its outcomes, None if its process ended of it; None when a helper is through."""


def cores() -> int:
    """How many this process may use."""
    with suppress(AttributeError, OSError):  # where processes have no affinity
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_all(checker: Checker, jobs: Sequence[Job], processes: int) -> Generator[Answer, None, None]:
    """What comes of each job, as it comes. Other processes than this one are used where that is quicker.

    Processes end with the iterator, at the latest.
    """
    wanted = min(processes, sum(job.size for job in jobs) // _WORTH_BYTES, len(jobs))
    left = list(jobs)
    if wanted > 1:
        left = yield from _elsewhere(checker, jobs, wanted)
    with collector_paused() as collect:
        since = 0
        for job in left:
            yield job, checker.check(job)
            since += job.size
            if since > _COLLECT_BYTES:
                collect()
                since = 0


def _elsewhere(checker: Checker, jobs: Sequence[Job], processes: int) -> Generator[Answer, None, list[Job]]:
    """Lint in other processes; gives back what none of them could be started for."""
    batches = _batches(jobs)
    killed: list[Job] = []
    with closing(_answers(checker, batches, processes)) as answers:
        for batch, outcomes in answers:
            if outcomes is None:
                killed += batch
            else:
                yield from zip(batch, outcomes, strict=True)
    left = [job for batch in batches for job in batch]
    # One of a batch ended its process: alone, each shows whether it was the one.
    suspects = deque([job] for job in killed)
    with closing(_answers(checker, suspects, 1)) as answers:
        for batch, outcomes in answers:
            yield batch[0], Outcome.failed(batch[0], _DIED) if outcomes is None else outcomes[0]
    return left + [job for batch in suspects for job in batch]


def _answers(
    checker: Checker, batches: deque[list[Job]], processes: int
) -> Generator[tuple[list[Job], list[Outcome] | None], None, None]:
    """Take batches until there are none, or no process can be started to take them."""
    messages: SimpleQueue[_Message] = SimpleQueue()
    helpers = [_Helper(checker, batches, messages) for _ in range(processes)]
    try:
        started = 0
        with suppress(RuntimeError):  # no more threads: those that there are do it, or this process
            for helper in helpers:
                helper.thread.start()
                started += 1
        through = 0
        while through < started:
            message = messages.get()
            if message is None:
                through += 1
            else:
                yield message
    finally:
        for helper in helpers:
            helper.stop()


class _Helper:
    """A thread that hands batches to a process of its own, and to a new one when that has ended of one."""

    def __init__(self, checker: Checker, batches: deque[list[Job]], messages: "SimpleQueue[_Message]") -> None:
        self.thread = Thread(target=self._run, name="stridewise lint", daemon=True)
        self._checker, self._batches, self._messages = checker, batches, messages
        self._lock = Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the process, whatever it is at, and the thread."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
        if self.thread.ident is not None:
            self.thread.join()

    def _run(self) -> None:
        try:
            while self._batches and self._start():
                try:
                    self._serve()
                finally:
                    self._end()
        finally:
            self._messages.put(None)

    def _start(self) -> bool:
        with self._lock:
            if self._stopped:
                return False
            try:
                self._process = subprocess.Popen(
                    _command(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    process_group=0,  # Ctrl-C on a terminal goes to this process alone
                )
            except OSError:
                return False
        try:
            return self._ask(self._checker) is True
        except (EOFError, OSError):
            self._end()
            return False

    def _serve(self) -> None:
        while True:
            try:
                batch = self._batches.popleft()
            except IndexError:
                return
            try:
                outcomes = self._ask(batch)
            except (EOFError, OSError):
                self._messages.put((batch, None))
                return
            self._messages.put((batch, cast("list[Outcome]", outcomes)))

    def _ask(self, value: object) -> object:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        worker.write(cast(Any, self._process.stdin), value)
        return worker.read(cast(Any, self._process.stdout))

    def _end(self) -> None:
        assert self._process is not None
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what was not written yet has no reader
                pipe.close()
        self._process.wait()


def _command() -> list[str]:
    # Without `site`: its start-up files take time, and the paths that they found are handed on.
    # Nor the current folder, nor one by way of it: a project may have a `queue.py` there.
    package = str(Path(worker.__file__).resolve().parents[3])
    paths = [path for path in map(str, sys.path) if os.path.isabs(path)]
    flags = ["-S", "-P", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *flags, "-c", _BOOT, *paths, package]


def _batches(jobs: Sequence[Job]) -> deque[list[Job]]:
    """Jobs by the size of their files, the largest first and by itself: the last to end shall be a small one."""
    batches: deque[list[Job]] = deque()
    size = _BATCH_BYTES
    for job in sorted(jobs, key=lambda job: -job.size):
        if size + job.size > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(job)
        size += job.size
    return batches
