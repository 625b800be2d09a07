"""Opaque operators: what a compiler or an export must neither drop nor carry out ahead of time.

Plain checks vanish when a program is traced, and `contiguous()` is dropped where the example needed no copy. These
stay, and look at the strides that there are when the program runs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from stridewise.checks.contracts.kinds import Kind, order_of
from stridewise.checks.contracts.report import Called, complain, what_breaks
from stridewise.checks.contracts.tensors import converted, in_order, is_changed

if TYPE_CHECKING:
    from torch import Tensor

NAMESPACE = "stridewise"
ASKED = "?"
"""Ends the name of a function that was asked while the program was compiled, and said no."""
_SCHEMA = "(Tensor x, Tensor? other, str kind, str mode, str function, str argument) -> Tensor"
_lock = threading.Lock()
_is_registered = False


def register_ops() -> None:
    """Define the operators `stridewise::lay_out` and `stridewise::check_layout`, once a process.

    A contract does it when it is made. A process that loads an exported program calls it before.
    """
    global _is_registered
    with _lock:
        if not _is_registered:
            _register()
            _is_registered = True


def _register() -> None:
    import torch
    from torch import library

    for name, real, fake in (("lay_out", _lay_out, _lay_out_fake), ("check_layout", _check_layout, _check_layout_fake)):
        qualified = f"{NAMESPACE}::{name}"
        library.define(qualified, _SCHEMA, tags=_tags(torch.Tag))
        library.impl(qualified, "CompositeExplicitAutograd")(real)
        library.register_fake(qualified)(fake)
        library.register_vmap(qualified)(_lay_out_batch if name == "lay_out" else _check_layout_batch)
    backward, context = (lambda ctx, grad: (grad, None, None, None, None, None)), (lambda ctx, inputs, output: None)
    torch.fx.node.has_side_effect(write_back)
    library.register_autograd(f"{NAMESPACE}::lay_out", backward, setup_context=context)


def _tags(tag: Any) -> tuple[Any, ...]:
    """That inductor hands over the strides that it was traced with; the older of the two keeps their order alone."""
    return (tag.needs_exact_strides if hasattr(tag, "needs_exact_strides") else tag.needs_fixed_stride_order,)


def lay_out(x: Any, other: Any, kind: str, mode: str, function: str, argument: str) -> Any:
    """The operator that gives a copy of the kind; with a mode other than `convert`, that first complains."""
    import torch

    return torch.ops.stridewise.lay_out.default(x, other, kind, mode, function, argument)


def check_layout(x: Any, other: Any, kind: str, mode: str, function: str, argument: str) -> None:
    """The operator that complains of another layout. An assertion takes its result, so no pass drops it."""
    import torch

    is_fine = torch.ops.stridewise.check_layout.default(x, other, kind, mode, function, argument)
    torch._assert_async(is_fine, f"{function}: the layout of {argument} is not {kind}")


def write_back(original: Tensor, copy: Tensor) -> None:
    """What a graph of `torch.fx` calls after a function that may have written to the copy of its argument."""
    if is_changed(copy, -1, original):
        original.copy_(copy)


def _lay_out(x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str) -> Tensor:
    if mode == "convert":
        made = _lay_out_fake(x, other, kind, mode, function, argument)
        _complain(made, other, kind, "raise", function, argument)
        return made
    _complain(x, other, kind, mode, function, argument)
    return x.clone()


def _lay_out_fake(x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str) -> Tensor:
    return converted(x, kind.partition("=")[0], other) if mode == "convert" else x.clone()


def _check_layout(x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str) -> Tensor:
    import torch

    _complain(x, other, kind, mode, function, argument)
    return torch.ones((), dtype=torch.bool)


def _check_layout_fake(x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str) -> Tensor:
    import torch

    return torch.empty((), dtype=torch.bool)


def _complain(x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str) -> None:
    name, _, other_name = kind.partition("=")
    asked = Kind(name, other=other_name or None)
    if name.endswith(ASKED):
        asked = Kind(name.removesuffix(ASKED), predicate=_never)
    broken = what_breaks(x, asked, other, Called(function, argument))
    if broken is not None:
        complain(broken, mode)


def _never(tensor: Any) -> bool:
    """Stands for a function of the program's, which the operator can't ask again."""
    return False


def _lay_out_batch(
    info: Any, in_dims: Any, x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str
) -> tuple[Tensor, int | None]:
    import torch

    if mode != "convert" or in_dims[0] is None or in_dims[1] is not None:
        _check_batch(in_dims, x, other, (kind, mode, function, argument))
        return (lay_out(x, other, kind, mode, function, argument) if in_dims[0] is None else x.clone()), in_dims[0]
    order = order_of(kind, x.dim() - 1)
    stacked = x.movedim(in_dims[0], 0)
    return in_order(stacked, (0, *(1 + dim for dim in order)), torch.contiguous_format), 0


def _check_layout_batch(
    info: Any, in_dims: Any, x: Tensor, other: Tensor | None, kind: str, mode: str, function: str, argument: str
) -> tuple[Tensor, None]:
    import torch

    _check_batch(in_dims, x, other, (kind, mode, function, argument))
    return torch.ones((), dtype=torch.bool), None


def _check_batch(in_dims: Any, x: Tensor, other: Tensor | None, asked: tuple[str, str, str, str]) -> None:
    """Of a batch under `vmap`, one sample stands for all: they have equal strides."""
    sample = x if in_dims[0] is None else x.select(in_dims[0], 0)
    beside = other if other is None or in_dims[1] is None else other.select(in_dims[1], 0)
    _complain(sample, beside, *asked)
