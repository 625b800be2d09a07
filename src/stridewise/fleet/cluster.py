"""Files on a Dask cluster: one that somebody runs, or one of processes on this machine that goes when they are read.

Dask runs what it is sent: whoever can connect to a scheduler can run code on its workers, and a scheduler can run code
in its clients. Connect only to clusters that you trust. The one on this machine listens on loopback, and only to who
holds the key that it was started with.
"""

import asyncio
import logging
import queue
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import dask
import distributed
import msgspec
from distributed.comm.core import connect
from distributed.core import send_recv
from distributed.scheduler import KilledWorker
from distributed.system import MEMORY_LIMIT
from distributed.versions import VersionMismatchWarning

from stridewise import __version__
from stridewise.analysis.summary import failure
from stridewise.errors import UsageError
from stridewise.fleet.work import Answer, summarize_file

Task = tuple[str, str, bytes]
"""What `summarize_file` takes."""

_CONNECT_S = 5
_LOOK_S = 2
"""How often to look whether the cluster is still there while nothing comes back."""
_PATIENCE_S = 120
"""How long to wait for a first worker: a cluster that grows on demand starts one when it sees the tasks."""
_AHEAD = 256
"""Tasks that wait on the scheduler at least: it need not know all of a hundred thousand."""

CONFIG = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    # A file that is too large for one worker's memory is too large for the others'.
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.active-memory-manager.start": False,
    # Without Dask's MALLOC_TRIM_THRESHOLD_: to give memory back after every array takes a fifth of the time.
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
}
"""How the processes on this machine are set up."""


def on_cluster(tasks: Sequence[Task], cluster: Any) -> Iterator[bytes]:
    """Answers for all tasks, as they come, from the scheduler at an address or from a client's.

    Raises UsageError if it can't be reached, has no worker for two minutes, or is lost.
    """
    if not isinstance(cluster, str):
        yield from _answers(cluster, tasks, "the client's cluster")
        return
    name = f"the cluster at {cluster}"
    with _quiet():
        _require_scheduler(cluster, name)
        with _connected(cluster, name) as client:
            yield from _answers(client, tasks, name)


def on_this_machine(tasks: Sequence[Task], workers: int) -> Iterator[bytes]:
    """Answers for all tasks, as they come, from so many processes, which are gone afterwards."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(_script_left_alone())
        folder = stack.enter_context(TemporaryDirectory(prefix="stridewise-"))
        stack.enter_context(dask.config.set({**CONFIG, "temporary-directory": folder}))
        with _interrupts_held():
            cluster = stack.enter_context(_started(workers))
        client = stack.enter_context(_connected(cluster, "the processes on this machine"))
        yield from _answers(client, tasks, "the processes on this machine")


@contextmanager
def _script_left_alone() -> Iterator[None]:
    """Keep processes that start meanwhile from importing the program's own script, as multiprocessing has them do.

    Nothing in it is needed there. It would load what it loads, torch perhaps, in each of them; and where its code is
    not under `if __name__ == "__main__":`, it would all be run again.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Control-C wait until a cluster has started: half of one can't be closed.

    Threads and processes inherit what is held, here for good: Control-C on a terminal goes to every process, and the
    workers would each write a traceback before they are closed.
    """
    resource_tracker.ensure_running()  # its first start would undo it in the thread that starts the processes
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(workers: int) -> Any:
    try:
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,  # reading holds Python's lock
            processes=True,
            host="127.0.0.1",
            # A key for this run, without which every user of this machine could run code as this one.
            security=True,
            memory_limit=int(0.9 * MEMORY_LIMIT / workers),
            silence_logs=logging.CRITICAL + 1,
            dashboard_address=None,
            # No dashboard; the port that Dask opens all the same is a free one, on loopback, and answers nothing.
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        )
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"processes to read the files in could not be started: {error}",
            advice="With workers=1 they are read in this one.",
        ) from None


def _require_scheduler(address: str, name: str) -> None:
    """Raise UsageError unless a scheduler answers there: Dask's client hangs on anything else, and on its own end."""

    async def ask() -> Any:
        comm = await connect(
            address, timeout=_CONNECT_S, **distributed.Security().get_connection_args("client"), deserialize=False
        )
        try:
            return await send_recv(comm, op="identity")
        finally:
            comm.abort()

    def answer() -> Any:
        return asyncio.run(asyncio.wait_for(ask(), _CONNECT_S + 1))

    # In a thread, since a notebook has a loop of its own in this one.
    with ThreadPoolExecutor(1) as threads:
        try:
            identity = threads.submit(answer).result()
        except Exception as error:  # what answers there may be anything
            raise _unreachable(name, error) from None
    kind = identity.get("type") if isinstance(identity, dict) else None
    if kind != "Scheduler":
        raise UsageError(f"{name} is no scheduler" + (f", but a {kind.lower()}" if isinstance(kind, str) else ""))


def _unreachable(name: str, error: Exception) -> UsageError:
    if isinstance(error, TimeoutError):
        return UsageError(f"{name} can't be reached: no answer in {_CONNECT_S} s")
    if isinstance(error, OSError | ValueError):
        return UsageError(f"{name} can't be reached: {' '.join(str(error).split())[:200]}")
    return UsageError(f"{name} can't be reached: what answers there is no Dask scheduler")


@contextmanager
def _connected(cluster: Any, name: str) -> Iterator[Any]:
    with warnings.catch_warnings():
        # What matters is the version of stridewise, and every answer holds it.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        try:
            client = distributed.Client(cluster, timeout=_CONNECT_S, set_as_default=False, name="stridewise")
        except Exception as error:  # Dask, tornado and ssl have errors of their own
            raise _unreachable(name, error) from None
    with client:
        yield client


def _answers(client: Any, tasks: Sequence[Task], name: str) -> Iterator[bytes]:
    killed: list[Task] = []
    for task, answer in _run(client, tasks, name, ahead=_AHEAD):
        if answer is None:
            killed.append(task)
        else:
            yield answer
    # Whatever else was on a worker that died is blamed with what killed it: alone, each shows whether it was the one.
    for task, answer in _run(client, killed, name, ahead=1):
        yield _failed(task, "each worker that read it died; perhaps it takes more memory than they have", answer)


def _run(client: Any, tasks: Sequence[Task], name: str, *, ahead: int) -> Iterator[tuple[Task, bytes | None]]:
    """Answers as they come; None where workers died of it."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[Any, Task] = {}
    left = iter(tasks)
    alive_at = time.monotonic()

    def submit(count: int) -> None:
        for task in islice(left, count):
            future = client.submit(summarize_file, *task, pure=False)
            running[future] = task
            future.add_done_callback(done.put)

    submit(ahead)
    while running:
        try:
            future = done.get(timeout=_LOOK_S)
        except queue.Empty:
            if _workers(client, name):
                alive_at = time.monotonic()
            elif time.monotonic() - alive_at > _PATIENCE_S:
                raise UsageError(f"{name} has had no worker for {_PATIENCE_S} s") from None
            continue
        task = running.pop(future)
        submit(1)
        yield task, _answer(future, task, name)


def _answer(future: Any, task: Task, name: str) -> bytes | None:
    try:
        answer: bytes = future.result()
        return answer
    except KilledWorker:
        return None
    except ModuleNotFoundError as error:
        raise UsageError(f"the workers of {name} can't run stridewise: {error}", advice="Install it there.") from None
    except Exception as error:
        if future.cancelled():
            raise _lost(name) from None
        return _failed(task, f"{name} could not read it: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    finally:
        future.release()


def _workers(client: Any, name: str) -> int:
    try:
        return len(client.nthreads())
    except Exception:  # of many kinds, by what of the connection went first
        raise _lost(name) from None


def _lost(name: str) -> UsageError:
    return UsageError(f"the connection to {name} was lost while files were read")


def _failed(task: Task, reason: str, answer: bytes | None = None) -> bytes:
    return answer or msgspec.json.encode(Answer(__version__, failure(task[1], reason)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: what matters to the person is said otherwise."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    loggers = [logger for logger in map(logging.getLogger, names) if not logger.disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False
