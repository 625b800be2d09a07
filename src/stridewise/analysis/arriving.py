"""Words for a gradient that arrives out of order: who made it so, and what, if anything, changes that."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.analysis.functions import (
    CONVOLUTIONS,
    DECIDE_GRADIENT_ORDER,
    REORDERS,
    SPLITS,
    orders_operands,
    short_name,
)
from stridewise.analysis.inside import stays_inside, words_inside
from stridewise.analysis.lineage import Stream
from stridewise.analysis.rule import Claim, Words
from stridewise.recording.model import LayoutRow
from stridewise.results.numbers import byte_count

_VIEWS = frozenset({"view", "reshape", "unflatten", "view_as", "reshape_as"})

_SPLIT_FIRST = (
    "Split it first, and swap dimensions of each part, as in `q, k, v = (part.transpose(1, 2) for part in"
    " qkv.unbind(2))`: the parts' gradients are then put together in order."
)
_CHANNELS_LAST = (
    "In channels_last this convolution takes such a gradient as it is: `stridewise fix --only channels_last` tries"
    " the model and its input so."
)
_NOTHING = "Nothing in forward changes that but to do without `{}`: a `.contiguous()` behind it does not help."


def words_of_arriving(case: Case, claims: Sequence[Claim], message: str) -> Words:
    """The finding's words, with what was seen of the gradient at its origin as evidence."""
    position = claims[0].copies[0]
    stream = case.streams[position]
    if stream is None or stream.origin.kind != "call":
        return Words(message=message)
    call = stream.origin.call
    name = short_name(case.function(call))
    seen = next(iter(case.gradients.arriving(call)), None)
    given = f"`{name}` is given its gradient as {_shape(seen)}" if seen is not None else ""
    if not case.flow.is_view(call):
        operand = next((row for row in _inputs(case, call) if not stream.goal.is_met_by(row)), None)
        has_own_order = orders_operands(name) and name not in DECIDE_GRADIENT_ORDER
        if operand is None or has_own_order:
            return Words(message, f"`{name}` computes it so: another form of the operation may not.")
        return Words(
            message=message,
            advice=f"It comes in order from a `{name}` whose operands are: mend that where the operand is made.",
            evidence=(f"`{name}` hands a gradient back in the order of its operand, {_shape(operand)}",),
        )
    swaps = "with the dimensions swapped, as a view must" if name in REORDERS else "in another order"
    evidence = (f"{given}, and hands it back {swaps}",) if given else ()
    helps = _of_view(case, position, stream)
    nothing = words_inside(case, position) if stays_inside(case, position) else _NOTHING.format(name)
    return Words(message, helps or nothing, evidence, only_a_note=helps is None)


def _of_view(case: Case, position: int, stream: Stream) -> str | None:
    """What helps where a view swaps dimensions; None if nothing does."""
    copy, call = case.copies[position], stream.origin.call
    if stays_inside(case, position):
        return None
    payer = short_name(case.payer_name(position))
    users = {short_name(case.function(user)) for user in case.flow.consumers.get(call, ())}
    if payer in _VIEWS and short_name(case.function(call)) in REORDERS and users & SPLITS:
        return _SPLIT_FIRST
    images = copy.sizes is not None and copy.source_strides is not None and len(copy.sizes) in (4, 5)
    if payer in CONVOLUTIONS and not payer.endswith("1d") and images and not stream.goal.channels_last:
        shape = layout.Layout(copy.sizes or (), copy.source_strides or ())
        if layout.name(shape) in ("channels_last", "channels_last_3d"):
            return _CHANNELS_LAST
    shared = [other for other in case.taxed if _is_of(case, other, copy.step, call)]
    if len({case.copies[other].call for other in shared}) < 2:
        return None
    start = " ".join((case.site(call).expression or "this").split())
    moved = sum(case.copies[other].bytes_moved or 0 for other in shared)
    return (
        f"Copy it once, with `.register_hook(lambda gradient: gradient.contiguous())` on the tensor that `{start}`"
        f" takes, if it requires a gradient: {byte_count(copy.bytes_moved or 0)} each time instead of {len(shared)}"
        f" copies that move {byte_count(moved)}."
    )


def _is_of(case: Case, position: int, step: int | None, origin: int) -> bool:
    """Whether a copy is of the gradient that an origin puts out of order in a step."""
    stream, copy = case.streams[position], case.copies[position]
    return (
        copy.step == step
        and copy.kind == "gradient"
        and stream is not None
        and stream.operand is None
        and stream.origin.kind == "call"
        and stream.origin.call == origin
    )


def _inputs(case: Case, call: int) -> list[LayoutRow]:
    return [row for ref in case.log.calls[call].inputs if (row := case.flow.row(ref)) is not None]


def _shape(row: LayoutRow) -> str:
    return f"{_tuple(row.sizes)} with strides {_tuple(row.strides)}"


def _tuple(values: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, values)) + ("," if len(values) == 1 else "") + ")"
