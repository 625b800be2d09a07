"""`guard_collectives`: tensors that a collective would move wrongly are stopped before it runs."""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from stridewise.checks.ranks import functional
from stridewise.checks.ranks.agreement import Link, Said, encoded, number_of
from stridewise.checks.ranks.arguments import handed
from stridewise.checks.ranks.collectives import (
    METHODS,
    Collective,
    Place,
    guarded,
    replaced,
    role_of,
    root_of,
    tensors_of,
)
from stridewise.checks.ranks.converted import CopyBack, converted_work, copy_of
from stridewise.checks.ranks.switch import Switch
from stridewise.checks.rules import sw201, sw202
from stridewise.checks.words import call_site
from stridewise.errors import ContractError, LayoutWarning, UsageError
from stridewise.findings import Finding, Site

Mode = Literal["raise", "convert", "warn"]
_MODES = ("raise", "convert", "warn")

_lock = threading.RLock()
"""Around the links of guards."""
_originals: dict[str, tuple[Any, Any]] = {}
"""Methods of `ProcessGroup` as they were, and what stands in their place."""
_NOWHERE = Site()


class CollectivesGuard(Switch):
    """A guard around the collectives of this process, on between `start()` and `stop()` or inside `with`."""

    started: ClassVar[list[CollectivesGuard]] = []
    """The last one decides."""

    def __init__(self, mode: Mode, across_ranks: bool, timeout: float) -> None:
        if mode not in _MODES:
            raise UsageError(f"mode={mode!r}", expected=f"one of {', '.join(map(repr, _MODES))}")
        if timeout <= 0:
            raise UsageError(f"timeout={timeout!r}", expected="seconds, more than 0")
        self.mode = mode
        self.across_ranks = across_ranks
        self.timeout = timeout
        self.findings: list[Finding] = []
        """What was stopped, converted or warned of, once for each site."""
        self._links: dict[int, tuple[Any, Link]] = {}
        self._said: set[tuple[str, str | None, int | None]] = set()

    def stop(self) -> None:
        """Stop guarding: the methods of `ProcessGroup` are again what they were. Of no effect when it is off."""
        super().stop()
        with _lock:
            self._links.clear()

    def _install(self) -> None:
        _install()

    def _remove(self) -> None:
        _remove()

    # -- a call ----------------------------------------------------------------------------------------------------

    def look(self, call: Guarded) -> Any:
        """Make a call, or stop it, or make it on copies."""
        if all(_is_contiguous(tensor) for _, tensor in call.tensors) and not self._compares(call):
            return call.make()
        problem = sw201.check(call.facts(_NOWHERE))
        if problem is not None:  # only now: to find the site takes many times what the rest does
            problem = sw201.check(call.facts(call_site()))
        if self._compares(call):
            return self._together(call, problem)
        if self.mode == "convert":
            return self._converted(call, problem)
        if problem is not None:
            self._tell(problem)
        return call.make()

    def _compares(self, call: Guarded) -> bool:
        return self.across_ranks and not call.collective.pairwise and call.group is not None

    def _together(self, call: Guarded, problem: Finding | None) -> Any:
        """The same on all ranks: a call is made by all or by none."""
        frame = sys._getframe(1)

        def what() -> str:
            return f"`{' '.join((call_site(frame).expression or call.op).split())}`"

        link = self._link(call.group, what)
        moved = tuple(
            sw202.Held(each.name, moved.sizes, moved.strides, dtype)
            for each, dtype in call.described()
            if (moved := sw201.moved(each)) is not None
        )
        # Here the tensors of one call are in one order, or that is the problem; lists are only given on a root.
        keys = sorted({repr(each.key) for each in moved}) if call.collective.in_order else []
        key = call.op, keys
        if link.agree(number_of(key), problem is not None, what):
            return call.make()
        site = call_site()
        said = Said(
            call.op,
            moved if call.collective.in_order else (),
            problem.message if problem else None,
            problem is None or call.can_convert(),
        )
        every = [_decoded(each) for each in link.exchange(encoded(said), what)]
        ops = {rank: each.op for rank, each in enumerate(every)}
        if self.mode == "convert" and len(set(ops.values())) == 1 and all(each.can_convert for each in every):
            return self._converted(call, problem, always=True)
        if problem is None:
            problem = _of_others(site, every, ops)
        self._tell(problem)
        return call.make()

    def _link(self, group: Any, what: Callable[[], str]) -> Link:
        with _lock:
            known = self._links.get(id(group))
        if known is not None:
            return known[1]
        link = Link(group, self.timeout, what)  # not under the lock: ranks may be threads of one process
        with _lock:
            return self._links.setdefault(id(group), (group, link))[1]

    def _tell(self, problem: Finding) -> None:
        """Raise, or warn once for each site. What can't be converted raises."""
        self._note(problem)
        if self.mode == "warn":
            key = problem.fingerprint, problem.site.file, problem.site.line
            if key in self._said:
                return
            self._said.add(key)
            text = f"{problem.message} {problem.advice or ''}".strip()
            warnings.warn_explicit(text, LayoutWarning, problem.site.file or "<unknown>", problem.site.line or 0)
            return
        raise _error(problem)

    def _note(self, problem: Finding) -> None:
        if all(each.fingerprint != problem.fingerprint or each.site != problem.site for each in self.findings):
            self.findings.append(problem)

    def _converted(self, call: Guarded, problem: Finding | None, *, always: bool = False) -> Any:
        """Make the call on contiguous copies of all tensors that it would not copy itself."""
        chosen = [
            (place, tensor, role)
            for place, tensor, role in call.moved()
            if not _is_contiguous(tensor) and (always or problem is not None or call.collective.in_order)
        ]
        if problem is not None:
            self._note(problem)
            if not call.can_convert():
                raise _error(problem)
        if not chosen:
            return call.make()
        copies = [(tensor, copy_of(tensor, role != "output")) for _, tensor, role in chosen]
        outputs = [at for at, (_, _, role) in enumerate(chosen) if role != "input"]
        others = {place: copy for (place, _, _), (_, copy) in zip(chosen, copies, strict=True)}
        return call.make(others, CopyBack(copies, outputs))


class Guarded:
    """One call of a collective, not yet made."""

    def __init__(
        self, op: str, collective: Collective, group: Any, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any
    ) -> None:
        self.op = op
        self.collective = collective
        self.group = group
        self.tensors = tensors_of(collective, args, kwargs)
        self._args, self._kwargs, self._original = args, kwargs, original

    def make(self, others: dict[Place, Any] | None = None, back: CopyBack | None = None) -> Any:
        """Make the call, with other tensors in these places."""
        args, kwargs = replaced(self._args, self._kwargs, others) if others else (self._args, self._kwargs)
        if self.collective.functional:
            made = self._original(*args, **kwargs)
            return made if back is None else functional.finished(made, back)
        work = self._original(self.group, *args, **kwargs)
        return work if back is None or work is None else converted_work(work, back)

    @functools.cached_property
    def is_root(self) -> bool:
        """Whether this rank is the one that a rooted collective is about."""
        if self.collective.root is None or self.group is None:
            return False
        return bool(self.group.rank() == root_of(self.collective, self._args, self._kwargs))

    @functools.cached_property
    def backend(self) -> str:
        """The backend that will run it, such as `gloo`."""
        return backend_of(self.group, self.tensors[0][1]) if self.tensors and self.group is not None else "gloo"

    def facts(self, site: Site) -> sw201.Call:
        """What a rule is to judge."""
        given = handed(self.op, self.collective, self.tensors, self.is_root, site)
        return sw201.Call(self.op, site, given, self.backend, self.collective.in_order)

    def can_convert(self) -> bool:
        """Whether it could be made on copies, and results be written back."""
        if self.collective.pairwise and self.backend != "gloo":  # in a batch, whose one `Work` we don't see
            return False
        return all(each.role == "input" or sw201.can_hold_a_result(each.layout) for each in self.facts(_NOWHERE).handed)

    def described(self) -> list[tuple[sw201.Handed, str]]:
        """The tensors whose memory is moved as it lies, with their dtypes."""
        chosen = [each for each in self.tensors if self._is_moved(each[0])]
        dtypes = [str(tensor.dtype).removeprefix("torch.") for _, tensor in chosen]
        given = handed(self.op, self.collective, chosen, self.is_root, _NOWHERE)
        return list(zip(given, dtypes, strict=False))

    def moved(self) -> list[tuple[Place, Any, sw201.Role]]:
        """The tensors whose memory is moved as it lies, and what each is to the call on this rank."""
        return [
            (place, tensor, role_of(self.collective.operands[place.position], self.collective, self.is_root))
            for place, tensor in self.tensors
            if self._is_moved(place)
        ]

    def _is_moved(self, place: Place) -> bool:
        return self.collective.operands[place.position].treatment != "packed"


def guard_collectives(mode: Mode = "raise", *, across_ranks: bool = False, timeout: float = 300.0) -> CollectivesGuard:
    """Stop collectives of `torch.distributed` that would move tensors wrongly, before any data is harmed.

    The guard is on inside `with`, or between `start()` and `stop()`, for all threads of this process. With `raise`,
    a tensor with gaps, an expanded or overlapping one raises `ContractError`, whose `finding` is SW201. With `convert`
    the collective runs on contiguous copies and results are copied back; what can't be written back raises. With
    `warn` there is a `LayoutWarning` for each site, and the call goes on.

    With `across_ranks`, strides, dtypes and counts of elements are compared between the ranks of the group before
    each call, and all of them raise (SW202). Each time that costs a small `all_reduce` or a few, over a gloo
    group that is apart from the job's. `timeout`: seconds that ranks wait for each other there; then `UsageError`
    names the ranks that did not come. Without it, the other ranks of a call that one rank stopped wait for it.
    """
    return CollectivesGuard(mode, across_ranks, timeout)


def backend_of(group: Any, tensor: Any) -> str:
    """The name of the backend that a group uses for a tensor's device. Tried on torch 2.13."""
    try:
        return str(group._get_backend(tensor.device).name()).lower()
    except (AttributeError, RuntimeError):
        return str(group.name()).lower()


def _error(problem: Finding) -> ContractError:
    return ContractError(problem.message, advice=problem.advice, finding=problem)


def _of_others(site: Site, every: list[Said], ops: dict[int, str]) -> Finding:
    stopped = next(((rank, each.stopped) for rank, each in enumerate(every) if each.stopped), None)
    if stopped is not None:
        return sw201.elsewhere(site, *stopped)
    return sw202.in_call(site, ops, {rank: each.held for rank, each in enumerate(every)})


def _decoded(text: bytes) -> Said:
    import msgspec

    return msgspec.json.decode(text, type=Said)


def _is_contiguous(tensor: Any) -> bool:
    try:
        return bool(tensor.is_contiguous())
    except RuntimeError:  # sparse and nested tensors have no strides to speak of
        return True


def _install() -> None:
    import torch
    import torch.distributed as dist

    if _originals or not dist.is_available():
        return
    for name, collective in guarded(METHODS, torch.__version__, functional=False).items():
        original = vars(dist.ProcessGroup).get(name)
        if original is not None:
            _originals[name] = original, _around(name, collective, getattr(dist.ProcessGroup, name))
            setattr(dist.ProcessGroup, name, _originals[name][1])
    functional.install(look)


def _remove() -> None:
    import torch.distributed as dist

    for name, (original, ours) in _originals.items():
        if vars(dist.ProcessGroup).get(name) is ours:  # what somebody put over it stays, and still calls it
            setattr(dist.ProcessGroup, name, original)
    _originals.clear()
    functional.remove()


def _around(name: str, collective: Collective, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard = CollectivesGuard.started[-1] if CollectivesGuard.started else None
        if guard is None:
            return original(self, *args, **kwargs)
        return guard.look(Guarded(name, collective, self, args, kwargs, original))

    return method


def look(name: str, collective: Collective, group: Any, args: Any, kwargs: Any, original: Callable[..., Any]) -> Any:
    """Look at a call of a functional collective."""
    guard = CollectivesGuard.started[-1] if CollectivesGuard.started else None
    if guard is None:
        return original(*args, **kwargs)
    return guard.look(Guarded(name, collective, group, args, kwargs, original))
