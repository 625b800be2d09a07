"""The points of torch that contracts look at which are not all public, each behind one function with a fallback.

Tried on torch 2.13.0; `tests/checks/contracts/test_private.py` takes each away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stridewise.errors import UsageError


def never() -> bool:
    """Stands in for a question that this torch can't be asked."""
    return False


def dynamo_probe() -> Callable[[], bool]:
    """A function that Dynamo takes for True and Python for False."""
    import torch

    return torch.compiler.is_dynamo_compiling


def tracing_probe() -> Callable[[], bool]:
    """A function that says whether something watches what runs: `jit.trace`, or a dispatch mode, as `make_fx` has."""
    import torch

    scripting: Callable[[], Any] = getattr(torch._C, "_get_tracing_state", is_scripted)
    modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", never)

    def is_watched() -> bool:
        return bool(scripting()) or modes() > 0

    return is_watched


def is_scripted() -> bool:
    """Whether `torch.jit.trace` records what runs."""
    from torch import jit

    return bool(jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def leave_in_python(function: Callable[..., Any]) -> None:
    """Have scripted code call a function in Python: TorchScript would compile what `__wrapped__` leads to."""
    from torch import jit

    jit.ignore(function)


def is_exporting() -> bool:
    """Whether `torch.export` traces. Before torch 2.7 it can't be told from compiling, when it is not Dynamo's."""
    import torch

    probe = getattr(torch.compiler, "is_exporting", None)
    if probe is not None:
        return bool(probe())
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def is_drawn() -> bool:
    """Whether operators are written into a graph, by `make_fx` as users call it; inside torch.compile is none of it."""
    import torch

    try:
        from torch._guards import TracingContext
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
    except ImportError:
        return False
    return get_proxy_mode() is not None and TracingContext.try_get() is None and not torch.compiler.is_compiling()


def has_own_dispatch(tensor: Any) -> bool:
    """Whether a tensor's class decides by itself what operators do, so that its strides need not be its memory's.

    Those that torch itself traces with show the strides of what they stand for.
    """
    import torch

    kind = type(tensor)
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return False
    return kind.__module__ not in ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")


def stop_export(given: str, expected: str, advice: str) -> None:
    """Raise a UsageError while Dynamo traces for export: an exception that it traces comes out as one of its own."""
    try:
        from torch._dynamo.comptime import comptime
    except ImportError:
        raise UsageError(given, expected=expected, advice=advice) from None
    comptime(_raise_with_locals)


def _raise_with_locals(context: Any) -> None:
    given, expected, advice = (context.get_local(name).as_python_constant() for name in ("given", "expected", "advice"))
    raise UsageError(given, expected=expected, advice=advice)
