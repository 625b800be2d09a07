"""Whether what takes a tensor would have copied it by itself, had it been handed over as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stridewise import layout
from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import CONVOLUTIONS, IMPLICIT, OTHER_ORDER, has_needs, need, short_name
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


def lacking(function: str, given: Sequence[Layout]) -> str:
    """What an operator that copied operands of these layouts wants of them: nothing that one of them has already.

    An operator has more than one kernel: attention with dropout multiplies matrices, and asks for what that asks for.
    """
    name = short_name(function)
    asked = need(function)
    if not given or name in CONVOLUTIONS or name == "cat":  # what they ask for is a matter of several operands
        return asked
    for words, has in _wishes(name, asked, given):
        if not any(map(has, given)):
            return words
    if all(layout.name(each) == "expanded" for each in given):
        return "its operand without strides of 0"
    if all(map(layout.is_contiguous, given)):
        return OTHER_ORDER
    in_order = all(list(order) == sorted(order) for order in map(layout.memory_order, given))
    return "its operand in one piece, without gaps" if in_order else OTHER_ORDER


def _wishes(name: str, asked: str, given: Sequence[Layout]) -> tuple[tuple[str, Callable[[Layout], bool]], ...]:
    """What an operator's kernels ask for, the usual one's first, and whether an operand has it."""
    if name == "scaled_dot_product_attention":
        folding = "batch and heads that fold into one without a copy, since it multiplies matrices here"
        return (asked, _ends_in_one), (folding, _folds_to_matrices)
    if name in _ONE_OF_TWO or (name in _FOLDS and all(len(each.sizes) < 3 for each in given)):
        return (need("mm"), _has_a_one), ("matrices whose rows or columns do not overlap", _has_rows_apart)
    if name in _FOLDS:
        return ((asked, _folds_to_rows if name == "linear" else _folds_to_matrices),)
    if "row-major or channels_last" in asked:
        return (asked, _is_in_a_format), ("row-major input", layout.is_contiguous)
    return ((asked, layout.is_contiguous),)


def _ends_in_one(given: Layout) -> bool:
    return given.strides[-1:] == (1,)


def _has_a_one(given: Layout) -> bool:
    return 1 in given.strides[-2:]


def _is_in_a_format(given: Layout) -> bool:
    return _is_channels_last(given) or layout.is_contiguous(given)


def _folds_to_rows(given: Layout) -> bool:
    return _folds(given, given.sizes[-1:])


def _folds_to_matrices(given: Layout) -> bool:
    return len(given.sizes) > 2 and _folds(given, given.sizes[-2:])


def _has_rows_apart(given: Layout) -> bool:
    """Whether the longer of a matrix's two strides steps over what the other covers, as BLAS asks of it."""
    if len(given.sizes) < 2:
        return False
    near, far = sorted(zip(given.strides[-2:], given.sizes[-2:], strict=True))
    return near[0] > 0 and far[0] >= near[0] * near[1]


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
