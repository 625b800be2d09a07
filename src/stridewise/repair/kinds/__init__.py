"""The kinds of candidates, one file each, in the order in which their candidates are tried."""

import functools
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from stridewise.errors import UsageError
from stridewise.repair.candidate import Kind

_ORDER = (
    "drop_copy",
    "reshape_first",
    "cast_order",
    "swap_operands",
    "hoist",
    "copy_at_origin",
    "copy_before_kernel",
    "channels_last_at_origin",
    "channels_last_model",
    "sdpa",
    "loader",
    "clone_slice",
    "step_plan",
)


@functools.cache
def all_kinds() -> tuple[Kind, ...]:
    """Every kind."""
    return tuple(Kind.from_module(import_module(f"{__name__}.{name}")) for name in _ORDER)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that names stand for: `channels_last` for every kind whose name begins so; `_` and `-` are the same.

    Raises UsageError for a name that no kind has.
    """
    known = [kind.name for kind in all_kinds()]
    found: dict[str, None] = {}
    for name in names:
        spelled = name.replace("_", "-").lower()
        meant = [kind for kind in known if kind == spelled] or [
            kind for kind in known if kind.startswith(f"{spelled}-")
        ]
        if not meant:
            near = get_close_matches(spelled, known, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"`{name}` names no kind of edit: {hint}")
        found |= dict.fromkeys(meant)
    return tuple(found)


__all__ = ["Kind", "all_kinds", "chosen"]
