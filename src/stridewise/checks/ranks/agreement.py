"""Ranks compare what they are about to exchange, over a gloo group of their own: none is added to the job's."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from stridewise.checks.rules.sw202 import Held
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_made: weakref.WeakKeyDictionary[ProcessGroup, int] = weakref.WeakKeyDictionary()
"""How many links a group had in this process: the next needs a place of its own in the store."""
_lock = threading.Lock()
_GRACE_S = 2.0
"""How long ranks that waited in vain look for each other."""


class Said(Struct, frozen=True):
    """What one rank tells the others."""

    op: str
    held: tuple[Held, ...]
    stopped: str | None = None
    """Why it will not make the call."""
    can_convert: bool = True
    """Whether it could make it on copies."""


class Link:
    """The ranks of one process group, connected apart from it. Made by all of them, or the absent are named.

    Raises `UsageError` after `timeout` seconds if a rank doesn't come.
    """

    def __init__(self, group: ProcessGroup, timeout: float, what: Callable[[], str]) -> None:
        import torch.distributed as dist

        self.rank, self.size = group.rank(), group.size()
        self._timeout, self._broken, self._round = timeout, "", 0
        self._lock = threading.Lock()
        with _lock:
            number = _made.get(group, 0)
            _made[group] = number + 1
        prefixed: Any = dist.PrefixStore  # type: ignore[attr-defined]
        self._store = prefixed(f"stridewise/{number}", _store_of(group))
        self._held: list[Any] = []
        weakref.finalize(self, _let_go, self._held, os.getpid())
        with self._together(what):
            self._held.append(
                dist.ProcessGroupGloo(
                    prefixed("gloo", self._store), self.rank, self.size, timeout=timedelta(seconds=timeout)
                )
            )
        options: Any = dist.AllreduceOptions
        self._options = options()
        self._options.reduceOp = dist.ReduceOp.MAX

    def agree(self, number: int, stop: bool, what: Callable[[], str]) -> bool:
        """Whether all ranks gave the same number (of 62 bits), and none wants to stop."""
        import torch

        with self._lock, self._together(what), torch.no_grad():
            sent = torch.tensor([number, -number, int(stop)])
            self._held[0].allreduce([sent], self._options).wait()
            high, low, stopped = sent.tolist()
        return high == -low and not stopped

    def exchange(self, said: bytes, what: Callable[[], str]) -> list[bytes]:
        """What each rank says, by rank."""
        import torch

        with self._lock, self._together(what), torch.no_grad():
            length = torch.tensor([len(said)])
            self._held[0].allreduce([length], self._options).wait()
            longest = int(length)
            sent = torch.frombuffer(bytearray(said.ljust(longest)), dtype=torch.uint8)
            got = [torch.empty_like(sent) for _ in range(self.size)]
            self._held[0].allgather([got], [sent]).wait()
        return [bytes(each.tolist()).rstrip() for each in got]

    def _together(self, what: Callable[[], str]) -> _Together:
        return _Together(self, what)

    def missing(self) -> list[int]:
        """The ranks that are not waiting too. Each that waited in vain says so in the store."""
        key = f"waited/{self._round}"
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            self._store.set(f"{key}/{self.rank}", "1")
            until = time.monotonic() + min(_GRACE_S, self._timeout)
            while others and time.monotonic() < until:
                others = [rank for rank in others if not self._store.check([f"{key}/{rank}"])]
                time.sleep(0.02)
        except RuntimeError:  # whoever holds the store has ended
            return others
        return others


class _Together:
    """A step that all ranks make. One that does not come is named; after that the link is of no use."""

    def __init__(self, link: Link, what: Callable[[], str]) -> None:
        self._link, self._what = link, what

    def __enter__(self) -> None:
        if self._link._broken:
            raise UsageError(self._link._broken)
        self._link._round += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, RuntimeError):  # how gloo and the store say that they waited too long
            return
        link = self._link
        absent = link.missing()
        ranks = ", ".join(map(str, absent)) or "unknown"
        link._broken = f"{self._what()}: rank {ranks} did not come to compare layouts within {link._timeout:g} s"
        raise UsageError(
            link._broken,
            expected="every rank of the group makes the same calls, with the same guard on",
            advice="Give a longer `timeout` if that rank was only late.",
        ) from error


def _let_go(held: list[Any], process: int) -> None:
    """End the threads of a gloo group, at the latest before the interpreter ends.

    The traceback of an uncaught error keeps the group alive, and threads that outlive the interpreter abort the process
    now and then ("terminate called without an active exception").
    """
    if os.getpid() == process:  # in a forked child the threads to wait for are not there
        held.clear()


def _store_of(group: ProcessGroup) -> Any:
    """The store through which the ranks of a group can meet. Tried on torch 2.13; older groups don't give theirs."""
    import torch.distributed as dist

    ask = getattr(group, "get_group_store", None)
    if ask is not None:
        try:
            return ask()
        except RuntimeError:  # a group that was made without one
            pass
    known = dist.distributed_c10d._world.pg_map.get(group)
    if known is not None:
        return known[1]
    raise UsageError("This process group has no store, so its ranks can't meet to compare layouts.")


def encoded(said: Said | dict[str, Held]) -> bytes:
    """As bytes to send."""
    return msgspec.json.encode(said)


def number_of(key: object) -> int:
    """The same number of 62 bits in every process for equal keys, which are made of tuples, texts and numbers."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest()) >> 2
