"""Runs a function in several gloo ranks, each a process of its own, and gives back what each of them returned."""

import contextlib
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).parents[3])
if ROOT not in sys.path:  # a rank finds the function that it is to run by the name of its module
    sys.path.append(ROOT)

_context = multiprocessing.get_context("forkserver")
# DistributedDataParallel and optimizers import the compiler: once here, not in every rank.
_context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "stridewise.checks.ranks"])


class RankFailed(AssertionError):
    """A rank raised, died or did not end in time."""


def world(size: int, function: Callable[..., Any], *args: Any, timeout: float = 60.0, init: bool = True) -> list[Any]:
    """What `function(rank, *args)` returned in each of `size` ranks of a gloo group.

    The function stands at the top level of its module. Raises `RankFailed` with the ranks' tracebacks.
    """
    outcomes = ends(size, function, *args, timeout=timeout, init=init)
    failed = [f"rank {rank}: {outcome}" for rank, (ok, outcome) in enumerate(outcomes) if not ok]
    if failed:
        raise RankFailed("\n".join(failed))
    return [outcome for _, outcome in outcomes]


def ends(
    size: int, function: Callable[..., Any], *args: Any, timeout: float = 60.0, init: bool = True
) -> list[tuple[bool, Any]]:
    """The same where ranks may fail: (True, what it returned) or (False, traceback or exit status) of each."""
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory() as folder:
        ranks, pipes = [], []
        for rank in range(size):
            here, there = _context.Pipe(duplex=False)
            process = _context.Process(
                target=_rank, args=(there, folder, rank, size, init, function, args), daemon=True
            )
            process.start()
            there.close()
            ranks.append(process)
            pipes.append(here)
        try:
            outcomes = _collected(pipes, deadline)
        finally:
            for process in ranks:
                _end(process)
        found = [
            (False, f"ended with status {process.exitcode}") if outcome is None else outcome
            for process, outcome in zip(ranks, outcomes, strict=True)
        ]
        for process, pipe in zip(ranks, pipes, strict=True):
            process.close()
            pipe.close()
        return found


def _collected(pipes: list[Connection], deadline: float) -> list[tuple[bool, Any] | None]:
    """What comes out of the pipes; None for a rank that died. Once a rank has failed, the others have two seconds."""
    outcomes: list[tuple[bool, Any] | None] = [None] * len(pipes)
    left = dict(enumerate(pipes))
    while left:
        ready = wait(list(left.values()), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            for rank in left:
                outcomes[rank] = (False, "did not end in time")
            return outcomes
        for rank in [rank for rank, pipe in left.items() if pipe in ready]:
            with contextlib.suppress(EOFError):
                outcomes[rank] = pickle.loads(left[rank].recv_bytes())
            del left[rank]
            outcome = outcomes[rank]
            if outcome is None or not outcome[0]:
                deadline = min(deadline, time.monotonic() + 2)
    return outcomes


def _end(process: ForkServerProcess) -> None:
    process.join(timeout=2)
    if process.is_alive():
        process.kill()
        process.join()


def _rank(
    pipe: Connection, folder: str, rank: int, size: int, init: bool, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    if init:
        store = dist.FileStore(os.path.join(folder, "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        dist.barrier()  # a rank that ends before another has met it would fail that one
    try:
        outcome = True, function(rank, *args)
    except BaseException:
        outcome = False, traceback.format_exc()
    pipe.send_bytes(pickle.dumps(outcome))  # by value: torch would share the memory of a tensor, and this process ends
    pipe.close()
    if init and outcome[0]:
        dist.destroy_process_group()
