"""Whether what takes a tensor would have copied it by itself, had it been handed over as it was."""

from __future__ import annotations

from stridewise import layout
from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import CONVOLUTIONS, IMPLICIT, has_needs, need, short_name
from stridewise.layout import Layout, LayoutError
from stridewise.recording.model import LayoutRow

_ONE_OF_TWO = frozenset({"mm", "bmm", "addmm", "baddbmm"})
_FOLDS = frozenset({"linear", "matmul", "einsum"})
_TAKES_CHANNELS_LAST = frozenset({"group_norm", "batch_norm", "pad", "cat"})
_VIEWS = frozenset({"view", "view_as", "unflatten", *IMPLICIT})


def needed_by(case: Case, copy: int) -> tuple[str, str] | None:
    """The first call behind a copy that would have to copy as well, by its function's name, and what it needs.

    Followed through views, whose layouts are worked out. None: no call behind is known to need the copy's order.
    """
    made = case.copies[copy]
    row = case.operand_row(copy)
    if made.call < 0 or row is None:
        return None
    front, seen = [(made.call, row.layout)], {made.call}
    while front:
        call, given = front.pop(0)
        for user in case.flow.consumers.get(call, ()):
            if user in seen:
                continue
            seen.add(user)
            name = short_name(case.function(user))
            if name in _VIEWS:
                viewed = _viewed(case, user, given)
                if viewed is None:
                    return name, "memory that it can give a view of"
                front.append((user, viewed))
            elif would_copy(case, user, given):
                return name, need(name)
    return None


def would_copy(case: Case, call: int, given: Layout) -> bool:
    """Whether a call is known to copy an operand of this layout."""
    name = short_name(case.function(call))
    rows = [row for ref in case.log.calls[call].inputs if (row := case.flow.row(ref)) is not None]
    if name in CONVOLUTIONS:
        of_weight = is_channels_last(rows[1]) if len(rows) > 1 else False
        return not _is_channels_last(given) and (of_weight or not layout.is_contiguous(given))
    if not has_needs(name) or layout.is_contiguous(given):
        return False
    if name in _ONE_OF_TWO:
        return 1 not in given.strides[-2:]
    if name == "scaled_dot_product_attention":
        return given.strides[-1:] != (1,)
    if name in _FOLDS:
        if len(given.sizes) < 3:
            return False
        if min(len(row.sizes) for row in rows[:2]) > 2:
            return not _folds(given, given.sizes[-2:])
        # where folding takes a copy, a product is done in batches, unless a weight has a gradient (torch looks at that)
        return _takes_parameter(case, call) and not _folds(given, given.sizes[-1:])
    return not (_is_channels_last(given) and (name in _TAKES_CHANNELS_LAST or "pool" in name))


def _takes_parameter(case: Case, call: int) -> bool:
    names = (case.log.names.get(case.log.refs[ref].object, "") for ref in case.log.calls[call].inputs)
    return any(name.startswith("parameter") for name in names)


def _viewed(case: Case, call: int, given: Layout) -> Layout | None:
    """The layout that a view of one would have; None if there is none."""
    rows: list[LayoutRow] = [row for ref in case.log.calls[call].outputs if (row := case.flow.row(ref)) is not None]
    try:
        return layout.view(given, rows[0].sizes) if rows else None
    except LayoutError:
        return None


def _folds(given: Layout, kept: tuple[int, ...]) -> bool:
    """Whether all dimensions but the last ones fold into one, and those can be multiplied as they are."""
    try:
        folded = layout.view(given, (-1, *kept))
    except LayoutError:
        return False
    return 1 in folded.strides[-2:]


def _is_channels_last(given: Layout) -> bool:
    return layout.name(given) in ("channels_last", "channels_last_3d")
