"""The program's own function or class in what torch and functools wrapped around it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HELD = (
    "_init_fn",  # torch.library.custom_op, triton_op
    "__wrapped__",  # functools.wraps, and with it torch.no_grad, torch.vmap, torch.compile
    "_torchdynamo_orig_callable",  # torch.compile, torch.compiler.disable
    "_torchdynamo_inline",  # torch.jit.script, torch.jit.trace
    "func",  # functools.partial
)
"""Where wrappers keep what they wrap. Tried on torch 2.13; a wrapper that is not known is its own definition."""


def definition_of(fn: Any) -> Any:
    """What the program wrote: the function, class or module inside all wrappers; `fn` itself where there is none."""
    seen: list[Any] = []
    while not any(fn is each for each in seen):
        seen.append(fn)
        fn = next(_inside(fn), fn)
    return fn


def _inside(fn: Any) -> Iterator[Any]:
    """What a wrapper wraps."""
    import torch

    if isinstance(fn, type):
        return
    if isinstance(fn, torch.nn.Module):
        own = vars(fn).get("_modules", {}).get("_orig_mod")  # of torch.compile
        if own is not None:
            yield own
        return
    registered = _registered(fn)
    if registered is not None:
        yield registered
    for name in _HELD:
        if name != "func" or isinstance(fn, functools.partial | functools.partialmethod):
            held = getattr(fn, name, None)
            if callable(held) and not inspect.ismethod(held):
                yield held
    if not _is_torchs(fn):
        return
    if inspect.ismethod(fn):  # `apply` of an autograd.Function, `__call__` of a module
        yield fn.__self__ if isinstance(fn.__self__, type | torch.nn.Module) else type(fn.__self__)
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # it is not filled yet
            continue
        if callable(held) and not isinstance(held, type) and not _is_torchs(definition_of(held)):
            yield held


def _registered(fn: Any) -> Any:
    """What `custom_op` or `triton_op` gave for an operator in `torch.ops`; None for others."""
    import torch
    from torch._library import custom_ops

    packet = getattr(fn, "overloadpacket", fn)
    known = getattr(custom_ops, "OPDEFS", {})
    return known.get(packet._qualified_op_name) if isinstance(packet, torch._ops.OpOverloadPacket) else None


def _is_torchs(fn: Any) -> bool:
    """Whether it is written in torch, or in no file."""
    import torch

    try:
        file = inspect.getsourcefile(type(fn) if isinstance(fn, torch.nn.Module) else fn)
    except TypeError:
        return True
    return file is None or Path(file).is_relative_to(Path(torch.__file__).parent)
