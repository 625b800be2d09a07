"""What an expression gives: its value from those of its parts, and from what torch's functions do."""

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stridewise.lint.facts.conditions import contiguity, memory_format, narrow
from stridewise.lint.facts.effects import (
    ARRAY_FUNCTIONS,
    ARRAY_METHODS,
    FUNCTIONS,
    METHODS,
    RELAYOUTS,
    Effect,
)
from stridewise.lint.facts.indexing import part_of
from stridewise.lint.facts.layers import layer_of
from stridewise.lint.facts.value import OTHER, UNKNOWN, Kind, Memory, State, Value, join

if TYPE_CHECKING:
    from stridewise.lint.module import Module, Scope

Environment = dict[str, Value]
_TRANSPOSED = ("T", "mT", "H", "mH")
_NO_TENSOR = ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "itemsize", "is_cuda", "is_sparse")
_CONTIGUOUS_COPIES = ("clone", "to", "empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like")


class Evaluator:
    """Evaluates the expressions of one scope, and keeps what each came to."""

    def __init__(self, module: "Module", scope: "Scope") -> None:
        self.module = module
        self.scope = scope
        self.values: dict[ast.expr, Value] = {}
        self.relayouts = False
        """Set when a call changed a tensor's own layout in place: what was known of layouts is then over."""

    def evaluate(self, node: ast.expr, environment: Environment) -> Value:
        """The value of an expression; those of its parts are kept as well."""
        value = self._evaluate(node, environment)
        before = self.values.get(node)
        # A node is run twice where two ways lead to it: a `finally`.
        value = value if before is None else join(before, value)
        self.values[node] = value
        return value

    def element(self, value: Value) -> Value:
        """One of several that a call gave: what `chunk` or `topk` returns is unpacked."""
        if value.kind != "tensor":
            return UNKNOWN
        return value if value.op in ("chunk", "split", "unbind", "tensor_split") else Value("unknown", op="element")

    def _evaluate(self, node: ast.expr, environment: Environment) -> Value:
        match node:
            case ast.Name(id=name):
                return environment.get(name, UNKNOWN)
            case ast.Constant():
                return OTHER
            case ast.Call():
                return self._call(node, environment)
            case ast.Attribute():
                return self._attribute(node, environment)
            case ast.Subscript():
                base = self.evaluate(node.value, environment)
                index = self.evaluate(node.slice, environment)
                return part_of(node, base, index, self.values)
            case ast.BinOp(left=left, right=right, op=op):
                operands = [self.evaluate(left, environment), self.evaluate(right, environment)]
                return made(Effect.ANY if isinstance(op, ast.MatMult) else Effect.LIKE, node, "operator", operands)
            case ast.UnaryOp(operand=operand, op=op):
                value = self.evaluate(operand, environment)
                return OTHER if isinstance(op, ast.Not) else made(Effect.LIKE, node, "operator", [value])
            case ast.Compare(left=left, comparators=others):
                operands = [self.evaluate(each, environment) for each in (left, *others)]
                return made(Effect.LIKE, node, "operator", operands)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.evaluate(test, environment)
                then = self.evaluate(body, narrow(self, test, environment, True))
                return join(then, self.evaluate(orelse, narrow(self, test, environment, False)))
            case ast.NamedExpr(target=ast.Name(id=name), value=assigned):
                environment[name] = self.evaluate(assigned, environment)
                return environment[name]
            case ast.BoolOp(values=parts):
                return self._bool(parts, isinstance(node.op, ast.And), environment)
            case ast.Lambda():
                # It runs later: nothing is known then of what the names around it stand for.
                self.evaluate(node.body, {})
                return OTHER
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node, environment)
                return OTHER
            case ast.Starred(value=starred):
                self.evaluate(starred, environment)
                return UNKNOWN
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                self._children(node, environment)
                return UNKNOWN
            case _:  # tuples, lists, slices, formatted strings
                self._children(node, environment)
                return OTHER

    def _children(self, node: ast.AST, environment: Environment) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child, environment)

    def _bool(self, parts: Sequence[ast.expr], is_and: bool, environment: Environment) -> Value:
        known, found = environment, []
        for part in parts:
            found.append(self.evaluate(part, known))
            known = narrow(self, part, known, is_and)
        value = found[0]
        for other in found[1:]:
            value = join(value, other)
        return value

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, environment: Environment
    ) -> None:
        inner = dict(environment)
        for generator in node.generators:
            self.evaluate(generator.iter, inner)
            for each in ast.walk(generator.target):
                if isinstance(each, ast.Name):
                    inner[each.id] = UNKNOWN
            for condition in generator.ifs:
                self.evaluate(condition, inner)
                inner = narrow(self, condition, inner, True)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.evaluate(part, inner)

    def _attribute(self, node: ast.Attribute, environment: Environment) -> Value:
        if self.module.name(node) is not None:
            return OTHER  # `torch.float32`, `np.pi`; functions are looked at where they are called
        base = self.evaluate(node.value, environment)
        if base.kind == "other":
            return UNKNOWN
        if node.attr in _TRANSPOSED:
            return made(Effect.PERMUTED, node, node.attr, [base])
        if node.attr == "data":
            return made(Effect.RESHAPED, node, "data", [base])
        return OTHER if node.attr in _NO_TENSOR else Value(op="attribute", node=node)

    def _call(self, node: ast.Call, environment: Environment) -> Value:
        function = node.func
        name = self.module.name(function)
        operands = []
        if name is None and isinstance(function, ast.Attribute):
            operands.append(self.evaluate(function.value, environment))
        elif not isinstance(function, (ast.Name, ast.Attribute)):
            self.evaluate(function, environment)
        operands += [self.evaluate(argument, environment) for argument in node.args]
        keywords = [self.evaluate(keyword.value, environment) for keyword in node.keywords]
        if name is not None:
            return self._function(node, name, [*operands, *keywords])
        if isinstance(function, ast.Attribute):
            layer = layer_of(self.module, self.scope, function)
            if layer is not None:
                return Value("tensor", op=layer, node=node, of=operands[1] if len(operands) > 1 else None)
            return self._method(node, function.attr, [*operands, *keywords])
        return UNKNOWN

    def _function(self, node: ast.Call, name: str, operands: Sequence[Value]) -> Value:
        effect = FUNCTIONS.get(name)
        last = name.rpartition(".")[2]
        if effect is not None:
            return self._with_format(node, last, made(effect, node, last, operands))
        if name in ARRAY_FUNCTIONS:
            return made(ARRAY_FUNCTIONS[name], node, last, operands, kind="array")
        return Value(op=last, node=node)

    def _method(self, node: ast.Call, name: str, operands: Sequence[Value]) -> Value:
        base = operands[0]
        if base.kind == "other":
            return UNKNOWN
        if base.kind == "array":
            effect = ARRAY_METHODS.get(name)
            return UNKNOWN if effect is None else made(effect, node, name, operands, kind="array")
        if name == "contiguous":
            state = contiguity(node)
            return Value("tensor", state or State.UNKNOWN, state is not None, name, node, base, "maybe")
        if name in RELAYOUTS:
            self.relayouts = True
            return Value("tensor", op=name, node=node)
        if name.endswith("_") and not name.startswith("_"):
            return base._replace(kind="tensor")
        effect = METHODS.get(name)
        return (
            Value(op=name, node=node, of=base)
            if effect is None
            else self._with_format(node, name, made(effect, node, name, operands))
        )

    def _with_format(self, node: ast.Call, name: str, value: Value) -> Value:
        """The value of a call that may name the memory format which its result has."""
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "memory_format"), None)
        if given is None or name not in _CONTIGUOUS_COPIES:
            return value
        state = memory_format(given)
        if state is State.CONTIGUOUS and name == "to":
            return value  # it does nothing to a tensor that needs no other dtype or device
        return value._replace(state=state or State.UNKNOWN, sure=state is not None)


_MEMORY: dict[Effect, Memory] = {
    Effect.FRESH: "fresh",
    Effect.LIKE: "fresh",
    Effect.ANY: "fresh",
    Effect.PERMUTED: "view",
    Effect.EXPANDED: "view",
    Effect.PART: "view",
    Effect.RESHAPED: "view",
    Effect.MAYBE: "maybe",
    Effect.SAME: "same",
}


def made(effect: Effect, node: ast.expr, op: str, operands: Sequence[Value], *, kind: Kind = "tensor") -> Value:
    """What an effect makes of values that go in."""
    if effect is Effect.HOST:
        return OTHER
    tensors = [operand for operand in operands if operand.kind != "other"]
    base = tensors[0] if tensors else None
    state, sure = State.UNKNOWN, False
    if op == "operator":  # of numbers too
        kind = next((each.kind for each in tensors if each.kind in ("tensor", "array")), "unknown")
    alike = effect is Effect.LIKE and bool(tensors) and all(tensor.is_contiguous for tensor in tensors)
    if effect is Effect.FRESH or alike:
        state, sure = State.CONTIGUOUS, True
    elif effect is Effect.LIKE and len(tensors) == 1 and base is not None and base.state is State.CHANNELS_LAST:
        state, sure = base.state, base.sure
    elif base is not None and effect in (Effect.RESHAPED, Effect.MAYBE, Effect.SAME):
        state, sure = base.state, base.sure
        if effect is Effect.MAYBE and state is not State.CONTIGUOUS:
            state, sure = State.UNKNOWN, False
    elif effect is Effect.PERMUTED:
        state, sure = State.PERMUTED, base is not None and base.is_contiguous
    elif effect is Effect.EXPANDED:
        state = State.EXPANDED
    return Value(kind, state, sure, op, node, base, _MEMORY[effect])
