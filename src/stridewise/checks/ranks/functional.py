"""The functional collectives that can harm: they reach the backend without a method of `ProcessGroup`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stridewise.checks.ranks.collectives import FUNCTIONAL, Collective, guarded
from stridewise.checks.ranks.converted import CopyBack

_guarded: list[tuple[Any, type]] = []
"""Operators, with the class that each had."""


def install(look: Callable[..., Any]) -> None:
    """Look at calls of these operators from Python; those that are not there are left out.

    Tried on torch 2.6 and 2.13.
    Operators are objects that much of torch holds on to and finds by their hash, so each stays the object that it is
    and gets a class that differs in how it is called.
    """
    import torch

    for name, collective in guarded(FUNCTIONAL, torch.__version__, functional=True).items():
        packet = getattr(torch.ops._c10d_functional, name, None)
        overload = getattr(packet, "default", None)
        for operator in (packet, overload):
            if operator is not None:
                kind = type(operator)
                operator.__class__ = _guarded_class(kind, name, collective, look)
                _guarded.append((operator, kind))


def remove() -> None:
    """Give the operators back the class that they had."""
    while _guarded:
        operator, kind = _guarded.pop()
        operator.__class__ = kind


def finished(result: Any, back: CopyBack) -> Any:
    """Wait for an operator that ran on copies, and give back the caller's tensors."""
    import torch

    wait = torch.ops._c10d_functional.wait_tensor
    waited = [wait(each) for each in result] if isinstance(result, list) else wait(result)
    back.finish()
    given = back.given(result)
    return back.given(waited) if given is result else given


def _guarded_class(kind: type, name: str, collective: Collective, look: Callable[..., Any]) -> type:
    plain: Callable[..., Any] = vars(kind)["__call__"]

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        def original(*args: Any, **kwargs: Any) -> Any:
            return plain(self, *args, **kwargs)

        if _is_traced(args):
            return original(*args, **kwargs)
        return look(name, collective, _group(args, kwargs), args, kwargs, original)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _is_traced(args: tuple[Any, ...]) -> bool:
    """Whether a compiler only wants to know what the result would look like."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    given = [each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return any(isinstance(each, (FakeTensor, FunctionalTensor)) for each in given)


def _group(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The process group of a call, which is handed over by name; None if it can't be found."""
    from torch.distributed import distributed_c10d

    resolve: Callable[[str], Any] = distributed_c10d._resolve_process_group  # type: ignore[attr-defined, assignment]
    found = [each for each in (*args[1:], *kwargs.values()) if not isinstance(each, (int, list, tuple))]
    for each in found:
        if isinstance(each, distributed_c10d.ProcessGroup):
            return each
    for each in reversed([each for each in found if isinstance(each, str)]):
        try:
            return resolve(each)
        except (RuntimeError, ValueError, KeyError, AttributeError):
            continue
    return None
