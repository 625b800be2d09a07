"""Two processes that reduce tensors together over gloo, on this machine alone: nothing listens beyond loopback."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

_RANKS = 2
_PATIENCE_S = 180.0
_STORE = "store"
"""The file, in a folder that only this user may read, through which the ranks find each other."""


class Ranks:
    """Started when they are first asked for, and ended with the block."""

    def __init__(self) -> None:
        self._ranks: list[_Rank] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._ranks = []

    def call(self, function: Callable[[int], Any]) -> list[Any]:
        """What a function gives on each rank, whose number it is given; it must be one of a module.

        Raises RuntimeError with what a rank raised, or if one died or hangs: the ranks are ended then.
        """
        if not self._ranks:
            self._ranks = self._stack.enter_context(_started())
        try:
            for rank in self._ranks:
                rank.ask(function)
            answers = [rank.answer() for rank in self._ranks]
        except RuntimeError:
            self.__exit__()
            raise
        failures = [f"rank {number}: {value}" for number, (fine, value) in enumerate(answers) if not fine]
        if failures:
            self.__exit__()  # the ranks may no longer be at the same collective
            raise RuntimeError("; ".join(failures))
        return [value for _, value in answers]


class _Rank:
    """A process that answers, through a pipe that nothing else writes into."""

    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, "rb")
        try:
            # Not multiprocessing, which would import the caller's main module anew in each of them.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stridewise.lab.ranks", str(number), folder, str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[writing],
            )
        finally:
            os.close(writing)

    def ask(self, function: Callable[[int], Any]) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(function, self.process.stdin)
            self.process.stdin.flush()
        except OSError:
            raise RuntimeError(f"rank {self.number} died") from None

    def answer(self) -> tuple[bool, Any]:
        if not select.select([self._answers], [], [], _PATIENCE_S)[0]:
            raise RuntimeError(f"rank {self.number} does not answer")
        try:
            answer: tuple[bool, Any] = pickle.load(self._answers)
        except (EOFError, pickle.UnpicklingError):
            raise RuntimeError(f"rank {self.number} died") from None
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self._answers):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def _started() -> Iterator[list[_Rank]]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise RuntimeError("this torch is built without gloo")
    with contextlib.ExitStack() as stack:
        # No TCPStore: wherever it is told to be, it listens on all interfaces.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stridewise-lab-"))
        ranks: list[_Rank] = []
        for number in range(_RANKS):
            ranks.append(_Rank(number, folder))
            stack.callback(ranks[-1].end)
        yield ranks


def _serve(rank: int, folder: str, answers: int) -> None:
    """A rank: answers until nobody asks any more, or who asked is gone."""
    import warnings

    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = dist.FileStore(os.path.join(folder, _STORE), _RANKS)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=_RANKS)
    with os.fdopen(answers, "wb") as out:
        while True:
            try:
                answer = True, pickle.load(sys.stdin.buffer)(rank)
            except EOFError:
                break
            except Exception as error:
                answer = False, f"{type(error).__name__}: {error}"
            pickle.dump(answer, out)
            out.flush()
    shutil.rmtree(folder, ignore_errors=True)  # who asked was killed, and has not
    os._exit(0)  # else the store would look for its file once more


def _loopback() -> str:
    """The name of the interface; where there is none by these names gloo refuses to start."""
    import socket

    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")


if __name__ == "__main__":
    number, folder, answers = sys.argv[1:]
    _serve(int(number), folder, int(answers))
