"""Whether a copy inside an operator is made for contiguous operands as well, so that layout is not at fault."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING

from stridewise import layout
from stridewise.analysis.copies import operators_around
from stridewise.analysis.copies_anyway import ANYWHERE, OUTERMOST
from stridewise.analysis.functions import CONVOLUTIONS, has_needs, orders_operands, short_name
from stridewise.analysis.lineage import moving
from stridewise.layout import Layout
from stridewise.recording.model import MARK

if TYPE_CHECKING:
    from stridewise.analysis.case import Case
    from stridewise.analysis.copies import TracedCopy
    from stridewise.recording.trace import Ops

_SPREAD = frozenset({"diagonal_backward", "select_backward", "slice_backward"})
"""They write a gradient into zeros of the size of what was indexed, and nothing else of it."""


def is_made_anyway(ops: Ops, copy: TracedCopy) -> bool:
    """Whether the operators that hold a copy were seen to make it whatever the layout of their operands."""
    if copy.kind in ("explicit", "implicit") or copy.op < 0 or ops.text(copy.op) != "aten::copy_":
        return False
    if _keeps_what_is_overwritten(ops, copy):
        return True
    path = ""
    for operator in operators_around(ops, copy.op):
        path = f"{operator}/{path}" if path else operator
        if path in ANYWHERE or path in _SPREAD:
            return True
    return path in OUTERMOST


def _keeps_what_is_overwritten(ops: Ops, copy: TracedCopy) -> bool:
    """Whether autograd copies the operand of an in-place operator, whose old values backward needs."""
    _, clone, operator, *_ = [*islice(ops.around(copy.op), 3), -1, -1]
    if operator < 0 or ops.text(clone) != "aten::clone":
        return False
    name, given = short_name(ops.text(operator)), next(iter(ops.args[operator].inputs), None)
    is_in_place = name.endswith("_") and not has_needs(name.rstrip("_"))
    return is_in_place and given is not None and given[:2] == (copy.sizes, copy.source_strides)


def is_of_contiguous_operands(case: Case, copy: TracedCopy) -> bool:
    """Whether an operator of torch's own copies, in forward, what contiguous operands hold.

    A copy into channels_last or out of it does not count: operands in that format save it. Nor does one of an operator
    whose operands can come with their dimensions in the order that it needs.
    """
    if copy.kind != "hidden" or copy.node >= 0 or copy.inferred or copy.change not in ("reorder", "pack"):
        return False
    ops = case.trace.ops
    inside = [*takewhile(lambda op: not ops.text(op).startswith(MARK), ops.around(copy.op))]
    if not inside or not all(ops.text(op).startswith("aten::") for op in inside):
        return False
    function = case.function(copy.call) if copy.call >= 0 else copy.top_op
    is_of_format = short_name(function) in CONVOLUTIONS or _is_of_channels_last(copy)
    if orders_operands(function) or (is_of_format and copy.change == "reorder"):
        return False
    given = _given(case, copy.call, inside[-1])
    known = [each for each in given if each is not None]
    if len(known) < len(given) or (copy.call >= 0 and _writes_operand(case, copy.call)):
        return False
    source = copy.sizes or (), copy.source_strides or ()
    exact = [each for each in known if (each.sizes, each.strides) == source]
    viewed = [each for each in known if moving(each.sizes, each.strides) == moving(*source)]
    return bool(known) and all(map(layout.is_contiguous, exact or viewed or known))


def _given(case: Case, call: int, op: int) -> list[Layout | None]:
    """The layouts of a call's operands, of an operator's where there is no call; None for one that is unknown."""
    if call >= 0:
        rows = map(case.flow.row, case.log.calls[call].inputs)
        return [None if row is None else row.layout for row in rows]
    args = case.trace.ops.args[op]
    if any(isinstance(entry, list) for sizes in args.dims if isinstance(sizes, list) for entry in sizes):
        return [None]  # lists of tensors
    return [None if strides is None else Layout(sizes, strides) for sizes, strides, _ in args.inputs if sizes]


def _writes_operand(case: Case, call: int) -> bool:
    """Whether a call gives back a tensor that it was given: one that it wrote into."""
    refs, row = case.log.refs, case.log.calls[call]
    return not {refs[ref].object for ref in row.inputs}.isdisjoint(refs[ref].object for ref in row.outputs)


def _is_of_channels_last(copy: TracedCopy) -> bool:
    """Whether one side of a copy is channels_last."""
    sides = [Layout(copy.sizes, strides) for strides in (copy.source_strides, copy.strides) if copy.sizes and strides]
    return any(layout.name(side) in ("channels_last", "channels_last_3d") for side in sides)
