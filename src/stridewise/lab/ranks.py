"""Two processes that reduce tensors together, over gloo on this machine alone."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_RANKS = 2
_PATIENCE_S = 60.0


class Ranks:
    """Started when they are first asked for, and ended with the block."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._processes = []

    def call(self, function: Callable[[int], Any]) -> list[Any]:
        """What a function gives on each rank, whose number it is given; it must be one of a module.

        Raises RuntimeError with what a rank raised, or if one died or hangs: the ranks are ended then.
        """
        if not self._processes:
            self._processes = self._stack.enter_context(_started())
        try:
            for rank, process in enumerate(self._processes):
                _ask(process, rank, function)
            answers = [_answer(process, rank) for rank, process in enumerate(self._processes)]
        except RuntimeError:
            self.__exit__()
            raise
        failures = [f"rank {rank}: {value}" for rank, (fine, value) in enumerate(answers) if not fine]
        if failures:
            self.__exit__()  # the ranks may no longer be at the same collective
            raise RuntimeError("; ".join(failures))
        return [value for _, value in answers]


def _ask(process: subprocess.Popen[bytes], rank: int, function: Callable[[int], Any]) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(function, process.stdin)
        process.stdin.flush()
    except OSError:
        raise RuntimeError(f"rank {rank} died") from None


def _answer(process: subprocess.Popen[bytes], rank: int) -> tuple[bool, Any]:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _PATIENCE_S)[0]:
        raise RuntimeError(f"rank {rank} does not answer")
    try:
        answer: tuple[bool, Any] = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise RuntimeError(f"rank {rank} died") from None
    return answer


@contextlib.contextmanager
def _started() -> Iterator[list[subprocess.Popen[bytes]]]:
    # Not multiprocessing, which would import the caller's main module anew in each of them.
    with tempfile.TemporaryDirectory(prefix="stridewise-lab-") as folder, contextlib.ExitStack() as stack:
        processes = []
        for rank in range(_RANKS):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stridewise.lab.ranks", str(rank), folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_end, process)
            processes.append(process)
        yield processes


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


def _serve(rank: int, folder: str) -> None:
    """A rank: answers until nobody asks any more."""
    import warnings

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints is no answer
    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = dist.FileStore(str(Path(folder, "store")), _RANKS)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=_RANKS)
    while True:
        try:
            answer = True, pickle.load(sys.stdin.buffer)(rank)
        except EOFError:
            return
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


def _loopback() -> str:
    import socket

    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
