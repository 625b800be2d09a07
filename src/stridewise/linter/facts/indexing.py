"""What an index of a tensor gives: a view for numbers and slices, a copy for tensors and lists."""

import ast
from collections.abc import Mapping, Sequence
from enum import Enum

from stridewise.linter.facts.value import NUMBER, STRIDED, Memory, State, Value


class Item(Enum):
    """What one item of an index does to a dimension."""

    ALL = "keeps it"
    PART = "takes a part of it, or all"
    FEW = "takes as many of it as the source says, which may be all"
    CUT = "takes a part of it, and never all"
    STEPPED = "takes every nth element"
    REVERSED = "runs through it backwards"
    PLACE = "takes one place of it"
    NEW = "adds one"
    REST = "keeps all that the others do not name"
    COPY = "picks elements by a tensor or a list"
    UNKNOWN = "not known"


_WHOLE = (Item.ALL, Item.NEW, Item.REST)


def part_of(node: ast.Subscript, base: Value, index: Value, values: Mapping[ast.expr, Value]) -> Value:
    """The value of `base[…]`. `values` tells what the names in the index are, where that is known."""
    if base.kind == "other":
        return Value(op="element", node=node)
    is_tuple = isinstance(node.slice, ast.Tuple)
    items = [item_of(item, values) for item in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
    memory: Memory = "view"
    if Item.COPY in items:
        memory = "fresh"
    elif Item.UNKNOWN in items or (
        base.kind == "unknown" and not is_tuple and not {*items} <= {Item.NEW, Item.STEPPED}
    ):
        memory = "unknown"  # a list may be what is indexed
    state, sure = _layout(items, base) if memory == "view" else (State.UNKNOWN, False)
    return Value(base.kind, state, sure, "index", node, base, memory, base.seen, base.regular and memory == "view")


def parts_along(dimension: int | None, base: Value, *, proper: bool) -> tuple[State, bool]:
    """How a part of a value along one dimension lies; `proper` if it is never all of it."""
    if dimension is None or dimension < -1:
        return State.UNKNOWN, False
    if dimension == 0:
        return (State.CONTIGUOUS, True) if base.is_contiguous else (State.UNKNOWN, False)
    return State.GAPPED, proper and base.is_contiguous


def _layout(items: Sequence[Item], base: Value) -> tuple[State, bool]:
    if Item.REVERSED in items:
        return State.NEGATIVE, items.count(Item.REVERSED) == 1 and base.is_contiguous
    if Item.STEPPED in items:
        return State.GAPPED, True
    if all(item in _WHOLE for item in items):
        if Item.NEW in items and base.state is State.CHANNELS_LAST:
            return State.UNKNOWN, False
        return base.state, base.sure
    state, sure = _cut(items)
    if base.is_contiguous:
        return state, sure
    # How it lies depends on what it is a part of.
    is_gapped = state is State.GAPPED and (sure or Item.FEW in items) and base.state not in STRIDED
    return State.GAPPED if is_gapped else State.UNKNOWN, False


def _cut(items: Sequence[Item]) -> tuple[State, bool]:
    """How a part of a contiguous tensor lies."""
    named = [item for item in items if item not in (Item.NEW, Item.REST)]
    if not _is_leading(named):
        return State.GAPPED, _is_proper(named)
    if Item.REST not in items or all(item in _WHOLE for item in items[items.index(Item.REST) :]):
        return State.CONTIGUOUS, True
    # `x[..., 0, :]` may be `x[0]`, but `x[..., 0]` is none: there are two dimensions.
    return State.GAPPED, len(named) == 1 and named[0] not in (Item.PART, Item.FEW)


def _is_leading(items: Sequence[Item]) -> bool:
    """Whether items take part of the first dimension, after places in those before, and all of the rest."""
    at = 0
    while at < len(items) and items[at] is Item.PLACE:
        at += 1
    if at < len(items) and items[at] in (Item.PART, Item.FEW, Item.CUT):
        at += 1
    return all(item is Item.ALL for item in items[at:])


def _is_proper(items: Sequence[Item]) -> bool:
    """Whether what is left is never in one piece: behind a dimension that stays, a place or a cut."""
    stays = next((at for at, item in enumerate(items) if item is not Item.PLACE), len(items))
    return any(item in (Item.PLACE, Item.CUT) for item in items[stays + 1 :])


def item_of(item: ast.expr, values: Mapping[ast.expr, Value]) -> Item:
    """What an item of an index does."""
    match item:
        case ast.Slice():
            return _slice(item)
        case ast.Constant(value=None):
            return Item.NEW
        case ast.Constant(value=bool()):
            return Item.COPY
        case ast.Constant(value=int()) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return Item.PLACE
        case ast.Constant(value=value) if value is ...:
            return Item.REST
        case ast.List() | ast.ListComp() | ast.Compare():
            return Item.COPY
    known = values.get(item)
    if known is not None and known.kind in ("tensor", "array"):
        return Item.COPY
    return Item.PLACE if known is NUMBER else Item.UNKNOWN


def _slice(item: ast.Slice) -> Item:
    step = 1 if item.step is None else literal(item.step)
    if step is None:
        return Item.UNKNOWN
    if step != 1:
        return Item.STEPPED if step > 1 else Item.REVERSED
    lower = 0 if item.lower is None else literal(item.lower)
    upper = literal(item.upper)
    if lower == 0 and item.upper is None:
        return Item.ALL
    starts_later = lower is not None and lower > 0
    ends_earlier = upper is not None and upper < 0
    if starts_later or ends_earlier:
        return Item.CUT
    return Item.PART if lower in (None, 0) and upper is None else Item.FEW


def literal(node: ast.expr | None) -> int | None:
    """The whole number that an expression is written as."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None
