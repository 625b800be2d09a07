"""The weakest contract that keeps out the layouts which an operator can't take. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stridewise.checks.operators.case import Outcome
from stridewise.layout import Layout, is_non_overlapping_and_dense, is_overlapping


def contract_for(failed: Sequence[Outcome]) -> dict[str, str] | None:
    """A kind of layout for each operand, and for `grads`, that none of the failing layouts is of.

    None if there is no such contract: what fails does so for contiguous operands too, or has no name.
    """
    layouts: dict[str, list[Layout | None]] = {}
    kinds: dict[str, str] = {}
    for outcome in failed:
        for name in outcome.case.arrangements:
            argument = re.split(r"[.\[]", name, maxsplit=1)[0]
            layouts.setdefault(argument, []).append(outcome.layouts.get(name))
        gradient = outcome.case.gradient
        if gradient is not None and gradient.name != "contiguous" and not outcome.case.arrangements:
            kinds["grads"] = "contiguous"
    kinds |= {name: _weakest(found) for name, found in layouts.items()}
    return kinds if kinds and all(name.isidentifier() for name in kinds) else None


def _weakest(failing: Sequence[Layout | None]) -> str:
    """The weakest kind that none of these layouts is of. Of a run that ended the process there is none."""
    found = [layout for layout in failing if layout is not None]
    if len(found) < len(failing):
        return "contiguous"
    if not any(not is_overlapping(layout) for layout in found):
        return "non_overlapping"
    dense = [layout for layout in found if is_non_overlapping_and_dense(layout)]
    if not dense:
        return "dense"
    # Of two dimensions each order of memory but the usual one has another last stride: that tells nothing of more.
    if all(layout.ndim > 2 and not _has_last_stride_1(layout) for layout in found):
        return "last_stride_1"
    return "contiguous"


def _has_last_stride_1(layout: Layout) -> bool:
    return layout.sizes[-1] < 2 or layout.strides[-1] == 1


def source_of(kinds: dict[str, str]) -> str:
    """The decorator, as source."""
    words = ", ".join(f'{name}="{kind}"' for name, kind in kinds.items())
    return f'@stridewise.expect_layout({words}, mode="convert")'
