"""The kinds of candidates, one file each, in the order in which their candidates are tried."""

import functools
from importlib import import_module

from stridewise.repair.candidate import Kind

_ORDER = (
    "drop_copy",
    "reshape_first",
    "cast_order",
    "swap_operands",
    "hoist",
    "copy_at_origin",
    "channels_last_at_origin",
    "channels_last_model",
    "sdpa",
    "loader",
    "clone_slice",
)


@functools.cache
def all_kinds() -> tuple[Kind, ...]:
    """Every kind."""
    return tuple(Kind.from_module(import_module(f"{__name__}.{name}")) for name in _ORDER)


__all__ = ["Kind", "all_kinds"]
