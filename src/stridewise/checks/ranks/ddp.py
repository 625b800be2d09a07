"""`guard_ddp`: parameters that get other strides after DistributedDataParallel was made are told at once."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stridewise.checks.ranks.switch import Switch
from stridewise.checks.rules import sw203
from stridewise.checks.words import call_site, layout_of
from stridewise.errors import ContractError, LayoutWarning, UsageError
from stridewise.findings import Finding

if TYPE_CHECKING:
    from torch.nn import Module

    from stridewise.layout import Layout

_originals: list[tuple[type, str, Any, Any]] = []
"""Of a class and a name: what stood there, and what stands there while a guard is on."""
_converting = threading.local()
"""How deep in conversions a thread is: only the outermost is looked at, when it has ended."""


class DDPGuard(Switch):
    """A guard on wrapped models, on between `start()` and `stop()` or inside `with`."""

    started: ClassVar[list[DDPGuard]] = []

    def __init__(self, model: Module | None, mode: Literal["raise", "warn"]) -> None:
        if mode not in ("raise", "warn"):
            raise UsageError(f"mode={mode!r}", expected="one of 'raise', 'warn'")
        self.mode = mode
        self.findings: list[Finding] = []
        self._watched: weakref.WeakKeyDictionary[Module, dict[str, Layout]] = weakref.WeakKeyDictionary()
        self._told: weakref.WeakKeyDictionary[Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()
        if model is not None:
            wrapped = [module for module in model.modules() if _is_ddp(module)]
            if not wrapped:
                raise UsageError(
                    f"guard_ddp: a {type(model).__name__} without DistributedDataParallel",
                    expected="a model that is wrapped, or none: then all that are wrapped inside are watched",
                )
            for module in wrapped:
                self.watch(module)

    def _install(self) -> None:
        _install()

    def _remove(self) -> None:
        _remove()

    def watch(self, ddp: Module) -> None:
        """Take the strides that the parameters of a wrapped model have now for those that it was made with."""
        if not getattr(ddp, "gradient_as_bucket_view", False):  # else gradients are views of the buckets: no harm
            self._watched[ddp] = _layouts(ddp)

    def look(self, ddp: Module, *, again: bool = False) -> None:
        """Compare the parameters of a wrapped model with those that it was made with, also if that was told."""
        before = self._watched.get(ddp)
        if before is None:
            return
        now = _layouts(ddp)
        found = tuple(
            sw203.Restrided(name, layout, now[name])
            for name, layout in before.items()
            if name in now and sw203.is_restrided(layout, now[name])
        )
        if not found:
            self._told.pop(ddp, None)
            return
        if self._told.get(ddp) == found and not again:
            return
        self._told[ddp] = found
        problem = sw203.check(found, call_site(), _made_with(ddp))
        assert problem is not None
        self._tell(problem)

    def look_at_all(self) -> None:
        """The same for all that are watched."""
        for ddp in list(self._watched):
            self.look(ddp)

    def _tell(self, problem: Finding) -> None:
        self.findings.append(problem)
        text = problem.message
        if self.mode == "warn":
            site = problem.site
            text = f"{text} {problem.advice}"
            warnings.warn_explicit(text, LayoutWarning, site.file or "<unknown>", site.line or 0)
            return
        raise ContractError(text, advice=problem.advice, finding=problem)


def guard_ddp(model: Module | None = None, mode: Literal["raise", "warn"] = "raise") -> DDPGuard:
    """Tell when parameters get other strides after `DistributedDataParallel` was made, which scrambles gradients.

    Watched are the wrapped modules in `model`, and all that are wrapped while the guard is on: inside `with`, or
    between `start()` and `stop()`. It looks when a conversion such as `model.to(...)` has ended, and before each
    forward of a wrapped model. With `raise` that is a `ContractError` whose `finding` is SW203 (the parameters have
    their new strides by then), with `warn` a `LayoutWarning`. Strides that a model has when the guard is made are
    taken for those that it was wrapped with: torch doesn't tell later what they were.
    """
    return DDPGuard(model, mode)


def _is_ddp(module: Any) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return isinstance(module, DistributedDataParallel)


def _made_with(ddp: Any) -> str:
    return next((name for name in ("find_unused_parameters", "static_graph") if getattr(ddp, name, False)), "")


def _layouts(ddp: Any) -> dict[str, Layout]:
    """Of the parameters whose gradients are reduced."""
    ignored = getattr(ddp, "parameters_to_ignore", ())
    found = {}
    for name, parameter in ddp.module.named_parameters():
        if parameter.requires_grad and name not in ignored:
            layout = layout_of(parameter)
            if layout is not None:
                found[name] = layout
    return found


def _install() -> None:
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel

    if not _originals:
        _put(Module, "_apply", _apply)
        _put(DistributedDataParallel, "__init__", _init)
        _put(DistributedDataParallel, "forward", _forward)


def _put(owner: type, name: str, around: Callable[[Any], Any]) -> None:
    original = vars(owner)[name]
    ours = functools.wraps(original)(around(original))
    setattr(owner, name, ours)
    _originals.append((owner, name, original, ours))


def _remove() -> None:
    while _originals:
        owner, name, original, ours = _originals.pop()
        if vars(owner).get(name) is ours:  # what somebody put over it stays, and still calls it
            setattr(owner, name, original)


def _apply(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        _converting.depth = getattr(_converting, "depth", 0) + 1
        try:
            applied = original(self, *args, **kwargs)
        finally:
            _converting.depth -= 1
        if not _converting.depth:
            for guard in tuple(DDPGuard.started):
                guard.look_at_all()
        return applied

    return apply


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for guard in tuple(DDPGuard.started):
            guard.watch(self)

    return init


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            for guard in tuple(DDPGuard.started):
                guard.look(self, again=guard.mode == "raise")
        return original(self, *args, **kwargs)

    return forward
