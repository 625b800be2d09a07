"""Which arguments an operator writes to, and whether it gives views: read from its schema, so of any operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from torch import Tensor
    from torch._ops import OpOverload


class Argument(Struct, frozen=True):
    """A place in a call."""

    position: int | None
    """None for what is passed by keyword only."""
    name: str


class Effects(Struct, frozen=True):
    """What a call of an operator does to memory that is there already."""

    writes: tuple[Argument, ...]
    """Tensors, or lists of tensors, whose elements it writes."""
    views: tuple[Argument, ...]
    """Tensors of whose memory its results are views."""


def effects_of(op: OpOverload) -> Effects:
    """The effects that the operator's schema tells.

    Operators that change sizes and strides only, such as `t_` and `set_`, are marked as written to; no element is.
    """
    import torch

    arguments = [
        (Argument(None if argument.kwarg_only else at, argument.name), argument.alias_info)
        for at, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None
    ]
    restrides = torch.Tag.inplace_view in op.tags
    writes = () if restrides else tuple(argument for argument, alias in arguments if alias.is_write)
    gives_views = any(result.alias_info is not None and not result.alias_info.is_write for result in op._schema.returns)
    views = tuple(argument for argument, alias in arguments if not alias.is_write) if gives_views else ()
    return Effects(writes, views)


def tensors_at(argument: Argument, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call was given at a place."""
    at = argument.position
    return tensors_of(args[at] if at is not None and at < len(args) else kwargs.get(argument.name))


def tensors_of(value: Any) -> list[Tensor]:
    """A tensor, or those of a list."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    return [entry for entry in value if isinstance(entry, torch.Tensor)] if isinstance(value, (list, tuple)) else []
