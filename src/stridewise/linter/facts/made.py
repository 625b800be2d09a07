"""What a call makes of the values that go in, by its effect: how the result lies, and whose memory it has."""

import ast
from collections.abc import Sequence
from typing import NamedTuple

from stridewise.linter.facts.effects import CONTIGUOUS_STAYS, IRREGULAR, ORDERED, Effect
from stridewise.linter.facts.indexing import literal, parts_along
from stridewise.linter.facts.value import OTHER, Kind, Memory, State, Value

_MEMORY: dict[Effect, Memory] = {
    Effect.FRESH: "fresh",
    Effect.FOLLOWS: "fresh",
    Effect.LIKE: "fresh",
    Effect.ANY: "fresh",
    Effect.PERMUTED: "view",
    Effect.EXPANDED: "view",
    Effect.PART: "view",
    Effect.RESHAPED: "view",
    Effect.NEGATIVE: "view",
    Effect.MAYBE: "maybe",
    Effect.SAME: "same",
    Effect.TENSOR: "unknown",
}
_UNKNOWN = State.UNKNOWN, False
_SAME_SIZES = ("detach", "data", "conj", "from_numpy", "Parameter")
"""Views that keep each dimension as it is."""


class Given(NamedTuple):
    """What a call is given besides the tensor that it is about."""

    positional: Sequence[ast.expr] = ()
    keywords: Sequence[ast.keyword] = ()

    def argument(self, at: int, *names: str) -> ast.expr | None:
        """An argument by its place behind the tensor, or by one of its names."""
        if len(self.positional) > at:
            return self.positional[at]
        return next((keyword.value for keyword in self.keywords if keyword.arg in names), None)

    def numbers(self) -> list[int | None]:
        """What each argument, and each part of one that is a tuple, is as a whole number."""
        found: list[int | None] = []
        for each in (*self.positional, *(keyword.value for keyword in self.keywords)):
            found += map(literal, each.elts) if isinstance(each, (ast.Tuple, ast.List)) else [literal(each)]
        return found


def made(
    effect: Effect,
    node: ast.expr,
    op: str,
    operands: Sequence[Value],
    *,
    kind: Kind = "tensor",
    given: Given | None = None,
) -> Value:
    """What an effect makes of values that go in, the tensor it is about first."""
    if effect is Effect.HOST:
        return OTHER
    tensors = [operand for operand in operands if operand.kind != "other"]
    base = tensors[0] if tensors else None
    if effect is Effect.FRESH:
        state, sure = State.CONTIGUOUS, True
    elif base is None:
        state, sure = _UNKNOWN
    else:
        state, sure = _layout(effect, op, tensors, given or Given())
    seen = effect is not Effect.FRESH and any(tensor.seen for tensor in tensors)
    regular = (
        state is State.CONTIGUOUS and op not in IRREGULAR and (effect is Effect.FRESH or _regular(effect, tensors))
    )
    return Value(kind, state, sure, op, node, base, _MEMORY[effect], seen, regular)


def _regular(effect: Effect, tensors: Sequence[Value]) -> bool:
    """Whether what goes in is regular, as far as the result is laid out like it."""
    return all(tensor.regular for tensor in (tensors if effect is Effect.LIKE else tensors[:1]))


def _layout(effect: Effect, op: str, tensors: Sequence[Value], given: Given) -> tuple[State, bool]:
    """How the result lies, and whether that is sure."""
    base = tensors[0]
    if effect is Effect.LIKE and len(tensors) > 1:
        # Tensors that are laid out, and shaped, as one another can be told apart by no stride of a size-1 dimension.
        alike = op in ORDERED and all(tensor is base for tensor in tensors)
        kept = all(tensor.is_contiguous and (tensor.regular or alike) for tensor in tensors)
        return (State.CONTIGUOUS, True) if kept else _UNKNOWN
    if effect in (Effect.FOLLOWS, Effect.LIKE, Effect.MAYBE):
        kept = base.state is State.CONTIGUOUS and (base.regular or op in CONTIGUOUS_STAYS)
        if op in ORDERED:
            kept = kept or base.state in (State.PERMUTED, State.CHANNELS_LAST)
        return (base.state, base.sure) if kept else _UNKNOWN
    if effect is Effect.RESHAPED:
        lost = base.state is State.CHANNELS_LAST and op not in _SAME_SIZES
        return _UNKNOWN if lost else (base.state, base.sure)
    if effect is Effect.SAME:
        return base.state, base.sure
    if effect is Effect.PERMUTED:
        if base.state is State.NEGATIVE:
            return base.state, base.sure
        # Of what is no more contiguous, it may be the way back.
        return State.PERMUTED, base.is_contiguous and _changes_order(op, given.numbers())
    if effect is Effect.EXPANDED:
        return State.EXPANDED, False
    if effect is Effect.NEGATIVE:
        return State.NEGATIVE, base.is_contiguous and (op != "rot90" or given.numbers() in ([], [1], [-1], [3]))
    return _part(op, base, given) if effect is Effect.PART else _UNKNOWN


def _changes_order(op: str, numbers: Sequence[int | None]) -> bool:
    """Whether a call is sure to put dimensions into another order, of a tensor with two or more."""
    if op in ("T", "mT", "H", "mH", "t", "adjoint") or (op == "transpose" and not numbers):
        return True
    known = [number for number in numbers if number is not None]
    if len(known) != len(numbers):
        return False
    if op == "permute" or len(known) > 2:
        order = [number % len(known) for number in known]
        return sorted(order) == list(range(len(order))) != order
    if len(known) != 2 or known[0] == known[1]:
        return False
    return (known[0] < 0) == (known[1] < 0) or {*known} == {0, -1}


def _part(op: str, base: Value, given: Given) -> tuple[State, bool]:
    """How a part lies that `chunk`, `select` and such take."""
    match op:
        case "diagonal":
            return State.GAPPED, base.is_contiguous
        case "chunk" | "tensor_split" | "array_split":
            number = literal(given.argument(0, "chunks", "indices_or_sections"))
            dimension, proper = given.argument(1, "dim", "axis"), number is not None and number > 1
        case "split" | "split_with_sizes":
            dimension, proper = given.argument(1, "dim", "axis"), False
        case "unbind":
            dimension, proper = given.argument(0, "dim"), True
        case "select" | "narrow":
            dimension, proper = given.argument(0, "dim"), op == "select"
            if dimension is None:
                return _UNKNOWN
        case _:
            return _UNKNOWN
    return parts_along(0 if dimension is None else literal(dimension), base, proper=proper)
