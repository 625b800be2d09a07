"""What a call gives: functions of torch and numpy by their full names, methods by what they are called on."""

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stridewise.linter.facts.conditions import contiguity, memory_format
from stridewise.linter.facts.effects import (
    ARRAY_FUNCTIONS,
    ARRAY_METHODS,
    FUNCTIONS,
    IN_PLACE,
    METHODS,
    OF_ANYTHING,
    RELAYOUTS,
    Effect,
)
from stridewise.linter.facts.indexing import literal
from stridewise.linter.facts.layers import layer_of
from stridewise.linter.facts.made import Given, made
from stridewise.linter.facts.scopes import sets_by_name
from stridewise.linter.facts.value import NUMBER, OPTIONS, OTHER, SIZES, UNKNOWN, Kind, State, Value

if TYPE_CHECKING:
    from stridewise.linter.facts.expressions import Evaluator

_CASTS = ("to", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cpu", "cuda")
_FIRST = ("input", "tensor", "tensors", "self", "a", "arr", "array", "m", "data", "x")
"""What torch and numpy call the parameter for the tensor that a function is about."""
_SIZES = ("dim", "ndimension", "numel", "nelement", "storage_offset", "element_size")
_BUILTINS = {
    **dict.fromkeys(("len", "int", "ord", "id", "hash"), NUMBER),
    "range": Value(kind="other", op="range"),
    **dict.fromkeys(
        ("float", "str", "bool", "repr", "isinstance", "hasattr", "callable", "type", "format", "memoryview"), OTHER
    ),
    **dict.fromkeys(("list", "tuple", "dict", "set", "frozenset", "zip", "enumerate", "sorted", "print"), OTHER),
}


class Calls:
    """Evaluates the calls of one scope."""

    def __init__(self, evaluator: "Evaluator") -> None:
        self._evaluator = evaluator

    def evaluate(self, node: ast.Call) -> Value:
        """The value of a call; those of its parts are kept as well."""
        evaluator = self._evaluator
        function = node.func
        name = evaluator.name(function)
        base = None
        if name is None and isinstance(function, ast.Attribute):
            base = evaluator.evaluate(function.value)
        elif not isinstance(function, (ast.Name, ast.Attribute)):
            evaluator.evaluate(function)
        operands = [evaluator.evaluate(argument) for argument in node.args]
        for keyword in node.keywords:
            evaluator.evaluate(keyword.value)
        if name is not None:
            return self._with_keywords(node, self._function(node, name))
        if sets_by_name(node):
            evaluator.relayout_later()
        if base is OPTIONS and isinstance(function.value, ast.Name):  # type: ignore[attr-defined]
            evaluator.environment.forget([function.value.id])  # type: ignore[attr-defined]
        if base is None:
            known = isinstance(function, ast.Name) and function.id not in evaluator.environment.known
            if known and function.id == "dict" and not node.args:  # type: ignore[attr-defined]
                return OPTIONS if are_options(keyword.arg for keyword in node.keywords) else OTHER
            return _BUILTINS.get(function.id, UNKNOWN) if known else UNKNOWN  # type: ignore[attr-defined]
        assert isinstance(function, ast.Attribute)
        layer = layer_of(evaluator.module, evaluator.scope, function)
        if layer is not None:
            return Value("tensor", op=layer, node=node, of=operands[0] if operands else None)
        if isinstance(function.value, ast.Name) and function.value.id in ("self", "cls"):
            # A method of the class at hand, whatever it is called.
            name = function.attr
            return Value(node=node) if name in METHODS else Value(op=name, node=node, of=base)
        return self._with_keywords(node, self._method(node, function, base))

    def _operands(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """The values of arguments; a list's are those of its elements."""
        values = self._evaluator.values
        found: list[Value] = []
        for node in nodes:
            parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else (node,)
            found += [values[part] for part in parts]
        return found

    def _function(self, node: ast.Call, name: str) -> Value:
        last = name.rpartition(".")[2]
        named = next((keyword for keyword in node.keywords if keyword.arg in _FIRST), None)
        about = [named.value] if named is not None and not node.args else node.args[:1]
        keywords = [keyword for keyword in node.keywords if keyword is not named or node.args]
        rest = node.args[1:]
        operands = self._operands([*about, *rest, *(keyword.value for keyword in keywords)])
        given = Given(rest, keywords)
        effect = FUNCTIONS.get(name)
        kind: Kind = "tensor"
        if effect is None:
            effect, kind = ARRAY_FUNCTIONS.get(name), "array"
        if name in ("torch.tensor", "numpy.array") and about and isinstance(about[0], (ast.List, ast.ListComp)):
            effect = Effect.FRESH
        elif name == "torch.where" and len(node.args) + len(node.keywords) == 1:
            effect = Effect.TENSOR  # the places of what is true: one tensor for each dimension
        effect = _by_arguments(effect, last, operands, given)
        if effect is not None:
            value = made(effect, node, last, operands, kind=kind, given=given)
            return _made_contiguous(value, State.CONTIGUOUS) if last == "ascontiguousarray" else value
        if last in RELAYOUTS:
            self._evaluator.relayout()
        first = next((operand for operand in operands if operand.kind != "other"), None)
        if first is not None and last in IN_PLACE and name.startswith("torch."):
            return made(Effect.SAME, node, last, [first])
        return Value(op=last, node=node, of=first)

    def _method(self, node: ast.Call, function: ast.Attribute, base: Value) -> Value:
        name = function.attr
        if base.kind == "other":
            return UNKNOWN
        operands = [base, *self._operands([*node.args, *(keyword.value for keyword in node.keywords)])]
        given = Given(node.args, node.keywords)
        if base.kind == "array":
            effect = ARRAY_METHODS.get(name)
            return UNKNOWN if effect is None else made(effect, node, name, operands, kind="array", given=given)
        if name in RELAYOUTS:
            self._evaluator.relayout()
            return Value("tensor", op=name, node=node, of=base, memory="same")
        kind: Kind = base.kind if name in OF_ANYTHING and not _is_torchs(node, name) else "tensor"
        if name in IN_PLACE:
            return made(Effect.SAME, node, name, operands, kind=kind)
        effect = _by_arguments(METHODS.get(name), name, operands, given)
        if effect is None:
            if name == "numpy":
                return made(Effect.MAYBE, node, name, operands, kind="array")
            return Value(op=name, node=node, of=base)
        if self._evaluator.seen is not None and (not base.sure or base.seen):
            operands[0] = base = self._as_seen(node, function.value, base)
        if effect is Effect.HOST:
            return _of_sizes(node, name)
        if name == "contiguous":
            return _made_contiguous(made(Effect.MAYBE, node, name, operands), contiguity(node))
        return made(effect, node, name, operands, kind=kind, given=given)

    def _as_seen(self, node: ast.Call, receiver: ast.expr, base: Value) -> Value:
        """The value that a method is called on, as a recording saw it lie there."""
        evaluator = self._evaluator
        assert evaluator.seen is not None
        # What is called may be a module's method of the name, to which the recording's tensor is an argument.
        state = evaluator.seen.receiver(node) if base.kind == "tensor" or node.func.attr not in OF_ANYTHING else None  # type: ignore[attr-defined]
        if state is None:
            return base
        base = base._replace(kind="tensor", state=state, sure=True, seen=True, regular=False)
        evaluator.values[receiver] = base
        return base

    def _with_keywords(self, node: ast.Call, value: Value) -> Value:
        """The value of a call whose keywords say where its result goes, or how it lies."""
        for keyword in node.keywords:
            match keyword.arg:
                case None if self._evaluator.values[keyword.value] is OPTIONS:
                    pass
                case None:  # it may hold a memory format, or where the result goes
                    value = value._replace(state=State.UNKNOWN, sure=False)
                case "out" if not _is_constant(keyword.value, None):
                    self._evaluator.relayout()  # it is resized if it does not fit
                    target = self._evaluator.values[keyword.value]
                    value = value._replace(state=State.UNKNOWN, sure=False, of=target, memory="same")
                case "inplace" if value.memory != "unknown" and not _is_constant(keyword.value, False):
                    is_sure = _is_constant(keyword.value, True)
                    value = value._replace(memory="same" if is_sure else "maybe")
                case "memory_format":
                    value = _with_format(value, keyword.value)
                case "order" if value.kind == "array" and not _is_constant(keyword.value, "C"):
                    value = value._replace(state=State.UNKNOWN, sure=False)
                case "copy" if value.memory in ("fresh", "maybe") and value.op in ("to", "astype", "array", "asarray"):
                    copies = _is_constant(keyword.value, True)
                    value = value._replace(memory="fresh" if copies else "maybe")
        return value


def are_options(keys: Iterable[object]) -> bool:
    """Whether the keys of a dictionary are such as say nothing of a layout, nor where a result goes."""
    return {*keys} <= {"device", "dtype"}


def _is_torchs(node: ast.Call, name: str) -> bool:
    """Whether the arguments of a method are such as only torch's takes."""
    if name in ("transpose", "view", "expand"):
        return len(node.args) > 1
    return any(keyword.arg in ("dim", "keepdim", "start_dim", "memory_format") for keyword in node.keywords)


def _by_arguments(effect: Effect | None, name: str, operands: Sequence[Value], given: Given) -> Effect | None:
    """The effect of a function that does something else for some arguments."""
    if effect is Effect.LIKE and name in ("max", "min"):  # of one tensor they reduce it, of two they don't
        return Effect.FRESH if all(operand.kind == "other" for operand in operands[1:]) else effect
    if effect is Effect.FRESH and name in ("unique", "unique_consecutive"):
        dimension = given.argument(3 if name == "unique" else 2, "dim")
        # The places along another dimension are taken first, and then moved back.
        return effect if dimension is None or literal(dimension) == 0 or _is_constant(dimension, None) else Effect.ANY
    if effect is Effect.FRESH and name in ("quantile", "nanquantile"):
        # Several of them along a dimension are moved in front.
        one = isinstance(given.argument(0, "q"), ast.Constant)
        return effect if one or given.argument(1, "dim") is None else Effect.ANY
    return effect


def _of_sizes(node: ast.Call, name: str) -> Value:
    if name in ("size", "stride"):
        return NUMBER if node.args or node.keywords else SIZES
    return NUMBER if name in _SIZES else OTHER


def _with_format(value: Value, given: ast.expr) -> Value:
    """The value of a call that is told the memory format of its result."""
    if value.op in ("contiguous", "is_contiguous") or (
        isinstance(given, ast.Attribute) and given.attr == "preserve_format"
    ):
        return value
    state = memory_format(given)
    if state is State.CONTIGUOUS and value.op in _CASTS:
        # It does nothing to a tensor that needs no other dtype or device.
        return value if value.state is State.CONTIGUOUS else value._replace(state=State.UNKNOWN, sure=False)
    if value.kind not in ("tensor", "unknown") or value.memory not in ("fresh", "maybe"):
        return value
    regular = state is State.CONTIGUOUS and value.memory == "fresh"
    return value._replace(state=state or State.UNKNOWN, sure=state is not None, regular=regular)


def _made_contiguous(value: Value, state: State | None) -> Value:
    """What `contiguous` and its like give, which may be the tensor itself."""
    regular = value.regular and value.is_contiguous and state is State.CONTIGUOUS
    return value._replace(state=state or State.UNKNOWN, sure=state is not None, regular=regular, seen=False)


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
