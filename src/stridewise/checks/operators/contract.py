"""The weakest contract that keeps out the layouts which an operator can't take. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.checks.operators.case import Outcome
from stridewise.layout import Layout, is_contiguous, is_non_overlapping_and_dense, is_overlapping

_KINDS = {
    "non_overlapping": lambda layout: not is_overlapping(layout),
    "last_stride_1": lambda layout: not layout.ndim or layout.sizes[-1] < 2 or layout.strides[-1] == 1,
    "dense": is_non_overlapping_and_dense,
    "channels_last": lambda layout: is_contiguous(layout, "channels_last"),
    "contiguous": is_contiguous,
}
"""The weakest first. All but channels_last hold of contiguous operands, with which it was compared."""


def contract_for(failed: Sequence[Outcome]) -> dict[str, str] | None:
    """A kind of layout for each operand, and for `grads`, that none of the failing layouts is of.

    None if no such contract would help: it fails for contiguous operands too.
    """
    layouts: dict[str, list[Layout]] = {}
    kinds: dict[str, str] = {}
    for outcome in failed:
        names = [name for name in outcome.case.arrangements if name in outcome.layouts or not outcome.layouts]
        gradient = outcome.case.gradient is not None and outcome.case.gradient.name != "contiguous"
        if not names and not gradient:
            return None
        if not names:
            kinds["grads"] = "contiguous"
        for name in names:
            if name in outcome.layouts:
                layouts.setdefault(name, []).append(outcome.layouts[name])
            else:
                kinds[name] = "contiguous"
    for name, found in layouts.items():
        if name not in kinds:
            kinds[name] = next((kind for kind, holds in _KINDS.items() if not any(map(holds, found))), "contiguous")
    return {name: kind for name, kind in kinds.items() if name.isidentifier()} or None


def source_of(kinds: dict[str, str]) -> str:
    """The decorator, as source."""
    words = ", ".join(f'{name}="{kind}"' for name, kind in kinds.items())
    return f'@stridewise.expect_layout({words}, mode="convert")'
