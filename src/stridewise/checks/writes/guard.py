"""A guard around a program: each write in place is looked at before it is made."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, get_args

from stridewise import layout
from stridewise.checks.rules import sw205
from stridewise.checks.rules.sw205 import Write
from stridewise.checks.words import call_place, call_site, layout_of, site_of
from stridewise.checks.writes.operators import Effects, effects_of, tensors_at, tensors_of
from stridewise.checks.writes.remembered import ByTensor
from stridewise.errors import ContractError, LayoutWarning, UsageError
from stridewise.findings import Finding, Site
from stridewise.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["raise", "warn"]


@contextmanager
def guard_writes(mode: Mode = "raise") -> Iterator[None]:
    """Look at each write in place, of the program and of torch, before it is made; also usable as a decorator.

    A write to a tensor of which several indices share an element (`expand`, `unfold`, `as_strided`), or to a part of
    such a tensor that is alive, raises ContractError, whose `finding` is SW205, and nothing is written. With `warn`
    there is a LayoutWarning for each site and the write is made. Which operators write is read from their schemas, so
    `out=`, item assignment, `_foreach_` and fused optimizers, backward and operators of `torch.library` are seen.

    Of this thread only, and what it makes backward do. Not seen: what kernels write that `torch.compile` generated,
    what is written through NumPy or pointers, or in tensor subclasses with operators of their own, and running
    statistics of batch norm, which its schema leaves out. Raises UsageError for another mode.
    """
    if mode not in get_args(Mode):
        raise UsageError(f"mode {mode!r}", expected=f"one of {', '.join(map(repr, get_args(Mode)))}")
    with _dispatch_mode()(Watch(mode)):
        yield


def check_write(tensor: Tensor) -> Finding | None:
    """What would be wrong with a write to all of a tensor: SW205, or None if each index has its own element."""
    given = layout_of(tensor)
    return None if given is None else sw205.check(Write("a write", call_site(_caller()), given))


class Watch:
    """Judges writes, and remembers which views share elements."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._warned: set[str] = set()
        self._origins: ByTensor[tuple[int, int]] = ByTensor()
        """By views whose elements are shared: where they were made."""
        self._wholes: ByTensor[tuple[weakref.ref[Tensor], ...]] = ByTensor()
        """By views: the tensors with shared elements that they were taken from, each from the one before it."""

    def before(self, op: str, effects: Effects, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An operator that writes is about to be called."""
        for argument in effects.writes:
            for tensor in tensors_at(argument, args, kwargs):
                shared = overlapping(tensor)
                if shared is not None:
                    self._report(Write(op, call_site(_caller()), shared, origin=self._origin(tensor)))
                elif self._wholes:
                    self._look_at_part(op, tensor)

    def after(self, effects: Effects, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """An operator gave views."""
        for argument in effects.views:
            for source in tensors_at(argument, args, kwargs):
                wholes = (self._wholes.get(source) or ()) if self._wholes else ()
                is_shared = overlapping(source) is not None
                if is_shared:
                    wholes = (*wholes, weakref.ref(source))
                for view in tensors_of(result):
                    if overlapping(view) is not None:
                        self._origins[view] = (is_shared and self._origins.get(source)) or call_place(_caller())
                    if wholes and view is not source:
                        self._wholes[view] = wholes

    def _origin(self, tensor: Tensor) -> Site | None:
        place = self._origins.get(tensor)
        return None if place is None else site_of(place)

    def _look_at_part(self, op: str, tensor: Tensor) -> None:
        given = layout_of(tensor)
        for reference in self._wholes.get(tensor) or ():
            whole = reference()  # of one that is gone, nobody sees the other indices
            shared = None if whole is None else overlapping(whole)
            if whole is not None and given is not None and shared is not None:
                self._report(Write(op, call_site(_caller()), given, part_of=shared, origin=self._origin(whole)))

    def _report(self, write: Write) -> None:
        finding = sw205.check(write)
        if finding is None:
            return
        if self._mode == "raise":
            raise _error(finding)
        if finding.fingerprint not in self._warned:
            self._warned.add(finding.fingerprint)
            site = finding.site
            warnings.warn_explicit(str(_error(finding)), LayoutWarning, site.file or "<unknown>", site.line or 0)


def overlapping(tensor: Tensor) -> Layout | None:
    """The layout of a tensor of which two indices share an element, else None."""
    strided = _strides(tensor)
    return layout_of(tensor) if strided is not None and _is_overlapping(*strided) else None


def _strides(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and strides, None where they tell nothing of memory, or the tensor is contiguous, as nearly all are."""
    import torch

    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_contiguous():
        return None
    return tensor.shape, tensor.stride()


def _caller() -> FrameType | None:
    """The frame that called the operator: torch wraps the mode's method in one of `torch._dynamo`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(
        ("stridewise.checks.", "torch._dynamo.", "torch._compile")
    ):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=4096)
def _is_overlapping(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return layout.is_overlapping(Layout(sizes, strides))


def _error(finding: Finding) -> ContractError:
    """Made here, not where it is raised: a frame that holds its own error would keep the program's tensors alive."""
    made = finding.origin
    since = f"its elements are shared since {made.where}" if made is not None and made.file is not None else None
    return ContractError(finding.message, expected=since, advice=finding.advice, finding=finding)


@functools.cache
def _dispatch_mode() -> Any:
    """The class of the mode; made here, since torch is not to be imported before it is needed."""
    from torch._ops import OpOverload
    from torch.utils._python_dispatch import TorchDispatchMode

    known: dict[Any, Effects] = {}

    class WriteGuard(TorchDispatchMode):
        """Hands each operator on as it came."""

        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """Compiled functions stay compiled; a torch that doesn't ask for this runs them uncompiled."""
            return True

        def __init__(self, watch: Watch) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._watch = watch

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            effects = known.get(func)
            if effects is None:
                effects = known[func] = effects_of(func) if isinstance(func, OpOverload) else Effects((), ())
            if effects.writes:
                self._watch.before(func._schema.name, effects, args, kwargs)
            result = func(*args, **kwargs)
            if effects.views:
                self._watch.after(effects, args, kwargs, result)
            return result

    return WriteGuard
