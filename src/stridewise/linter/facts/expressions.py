"""What an expression gives: its value from those of its parts, and from what torch's functions do."""

import ast
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from stridewise.linter.facts.calls import Calls, are_options
from stridewise.linter.facts.conditions import narrow
from stridewise.linter.facts.effects import ATTRIBUTES, RELAYOUTS, SEVERAL, SOMETIMES_SEVERAL, Effect
from stridewise.linter.facts.environment import Environment
from stridewise.linter.facts.indexing import part_of
from stridewise.linter.facts.made import made
from stridewise.linter.facts.scopes import parameters
from stridewise.linter.facts.value import NUMBER, OPTIONS, OTHER, SIZES, UNKNOWN, Seen, State, Value, join

if TYPE_CHECKING:
    from stridewise.linter.module import Module, Scope

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_LIBRARIES = ("torch.", "numpy.", "math.")


class Evaluator:
    """Evaluates the expressions of one scope, and keeps what each came to."""

    def __init__(self, module: "Module", scope: "Scope", environment: Environment) -> None:
        self.module = module
        self.scope = scope
        self.environment = environment
        self.values: dict[ast.expr, Value] = {}
        self.relayouts = 0
        """How often a tensor's layout was changed in place so far."""
        self.seen: Seen | None = module.seen
        self._calls = Calls(self)
        self._walrus: set[str] = set()
        """Names bound by `:=` so far."""
        self._bindings = 0
        """How often any was."""
        self._by_type: dict[type[ast.expr], Callable[[Any], Value]] = {
            ast.Call: self._calls.evaluate,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.IfExp: self._if,
            ast.NamedExpr: self._named,
            ast.BoolOp: self._bool,
            ast.Lambda: self._lambda,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Tuple: self._display,
            ast.List: self._display,
            ast.Starred: self._later,
            ast.Await: self._later,
            ast.Yield: self._later,
            ast.YieldFrom: self._later,
        }

    def evaluate(self, node: ast.expr) -> Value:
        """The value of an expression; those of its parts are kept as well."""
        kind = type(node)
        if kind is ast.Name:
            value = self.environment.known.get(node.id, UNKNOWN)  # type: ignore[attr-defined]
        elif kind is ast.Constant:
            value = NUMBER if type(node.value) is int else OTHER  # type: ignore[attr-defined]
        else:
            value = self._by_type.get(kind, self._others)(node)
            if self.seen is not None:
                value = self._as_seen(node, value)
        if node in self.values:  # two ways lead to it: a `finally`
            value = join(self.values[node], value)
        self.values[node] = value
        return value

    def element(self, value: Value, at: int | None = None) -> Value:
        """One of several: what `chunk` gives is unpacked, or a tensor is, along its first dimension."""
        if value.op in SEVERAL or value.op in SOMETIMES_SEVERAL:
            return value
        if value.kind == "other":
            return NUMBER if value.op in ("range", "sizes") else UNKNOWN
        if value.kind in ("tensor", "array") and not isinstance(value.node, ast.Call):
            state, sure = (State.CONTIGUOUS, True) if value.is_contiguous else (State.UNKNOWN, False)
            return Value(value.kind, state, sure, "element", None, value, "view", value.seen, value.regular)
        if value.kind != "tensor":
            return UNKNOWN
        # A layer's result may be several tensors, the first of which is what it is about.
        return Value("unknown", op="element", of=value if at == 0 else None)

    def relayout(self) -> None:
        """Something changed a tensor's layout in place: what was known of any is over."""
        self.relayouts += 1
        self.environment.forget_layouts()

    def relayout_later(self) -> None:
        """Something may do so at any time from now on."""
        self.relayouts += 1
        self.environment.lays = False
        self.environment.forget_layouts()

    def children(self, node: ast.AST) -> None:
        """Evaluate all that stands in a node."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)

    def _as_seen(self, node: ast.expr, value: Value) -> Value:
        assert self.seen is not None
        if not isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare)):
            return value
        # What the source tells holds in every run, what a recording saw in that one.
        state = self.seen.output(node) if not value.sure or value.seen else None
        return value if state is None else value._replace(state=state, sure=True, seen=True, regular=False)

    def _display(self, node: ast.Tuple | ast.List) -> Value:
        for element in node.elts:
            self.evaluate(element)
        return OTHER

    def _others(self, node: ast.expr) -> Value:
        """Dictionaries, sets, slices, formatted strings."""
        self.children(node)
        if isinstance(node, ast.Dict):
            keys = (key.value if isinstance(key, ast.Constant) else None for key in node.keys)
            return OPTIONS if are_options(keys) else OTHER
        return OTHER

    def _later(self, node: ast.expr) -> Value:
        self.children(node)
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Value:
        if node.attr in RELAYOUTS:  # a method that is not called here
            self.relayout_later()
        name = self.name(node)
        if name is not None:  # `torch.float32`, `np.pi`; functions are looked at where they are called
            return OTHER if name.startswith(_LIBRARIES) else UNKNOWN
        base = self.evaluate(node.value)
        if base.kind == "other":
            return UNKNOWN
        effect = ATTRIBUTES.get(node.attr)
        if effect is None:
            several = base.op in SEVERAL or base.op in SOMETIMES_SEVERAL
            return base if several and base.node is not None else Value(op="attribute", node=node)
        if effect is Effect.HOST:
            return {"ndim": NUMBER, "shape": SIZES}.get(node.attr, OTHER)
        return made(effect, node, node.attr, [base], kind=base.kind)

    def name(self, node: ast.expr) -> str | None:
        """The full name by the imports of a name or attribute, unless its first part is bound in this scope."""
        first = node
        while type(first) is ast.Attribute:
            first = first.value
        if type(first) is not ast.Name or first.id in self.environment.known:
            return None
        return self.module.name(node, self.scope)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        index = self.evaluate(node.slice)
        if type(node.slice) is ast.Constant and type(node.slice.value) is str:
            return Value(op="element", node=node)
        if base.op in SEVERAL and isinstance(base.node, ast.Call) and index is NUMBER:
            return self.element(base)
        if (
            base.op in SOMETIMES_SEVERAL and base.is_contiguous and index is NUMBER
        ):  # one of them, or a part of the first
            return Value("tensor", State.CONTIGUOUS, True, "index", node, base, regular=base.regular)
        if base is SIZES:
            return NUMBER if index is NUMBER else SIZES
        return part_of(node, base, index, self.values)

    def _binary(self, node: ast.BinOp) -> Value:
        operands = self.evaluate(node.left), self.evaluate(node.right)
        return self.operator(Effect.FRESH if type(node.op) is ast.MatMult else Effect.LIKE, node, operands)

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        return OTHER if type(node.op) is ast.Not else self.operator(Effect.FOLLOWS, node, (value,))

    def _compare(self, node: ast.Compare) -> Value:
        operands = [self.evaluate(node.left), self.evaluate(node.comparators[0])]
        if len(node.comparators) > 1:  # what is behind the first is not evaluated where that is false
            before = self._enter()
            operands += [self.evaluate(each) for each in node.comparators[1:]]
            self._leave(before)
        if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return OTHER
        return self.operator(Effect.LIKE, node, operands)

    def operator(self, effect: Effect, node: ast.expr, operands: Sequence[Value]) -> Value:
        """What an operator gives, of numbers too."""
        kind = None
        for operand in operands:
            if operand.kind == "other":
                continue
            if kind in (None, "unknown"):
                kind = operand.kind
        if kind is None:
            return NUMBER if all(operand is NUMBER for operand in operands) else OTHER
        return made(effect, node, "operator", operands, kind=kind)

    def _if(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        ends = []
        for truth, branch in ((True, node.body), (False, node.orelse)):
            before = self._enter()
            narrow(self.module, node.test, self.environment, truth)
            ends.append(self.evaluate(branch))
            self._leave(before)
        return join(*ends)

    def _bool(self, node: ast.BoolOp) -> Value:
        is_and = type(node.op) is ast.And
        value = self.evaluate(node.values[0])
        before = self._enter()
        for part, other in pairwise(node.values):
            narrow(self.module, part, self.environment, is_and)
            value = join(value, self.evaluate(other))
        self._leave(before)
        return value

    def _enter(self) -> int:
        """Begin what may not run, or more than once; `_leave` takes what it gives."""
        self.environment.branch()
        return self.relayouts

    def _leave(self, relayouts: int) -> None:
        """End that: what it bound by `:=` and relaid is not known from then on, and what held only there is over."""
        changes = self.environment.leave()
        if self._walrus:
            self.environment.forget(name for name in changes if name in self._walrus)
        if self.relayouts != relayouts:
            self.environment.forget_layouts()

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self._bindings += 1
        self._walrus.add(node.target.id)
        self.environment.bind(node.target.id, value)
        self.values[node.target] = value
        return value

    def _lambda(self, node: ast.Lambda) -> Value:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.evaluate(default)
        # It runs later: nothing is known then of what the names around it stand for.
        around, relayouts = self.environment, self.relayouts
        self.environment = Environment(dict.fromkeys(around.known, UNKNOWN) | parameters(node.args))
        self.evaluate(node.body)
        self.environment = around
        if self.relayouts != relayouts:
            around.lays = False
            around.forget_layouts()
        return OTHER

    def _comprehension(self, node: _Comprehension) -> Value:
        first = self.evaluate(node.generators[0].iter)
        before = self.relayouts, self._bindings
        self._run_comprehension(node, first)
        if before != (self.relayouts, self._bindings):  # what the first round left is not known in the next
            self._run_comprehension(node, first)
            if isinstance(node, ast.GeneratorExp):  # it runs where its elements are asked for
                self.environment.share(self._walrus)
                if self.relayouts != before[0]:
                    self.relayout_later()
        return OTHER

    def _run_comprehension(self, node: _Comprehension, first: Value) -> None:
        before = self._enter()
        for generator in node.generators:
            value = first if generator is node.generators[0] else self.evaluate(generator.iter)
            self._bind_element(generator.target, value)
            for condition in generator.ifs:
                self.evaluate(condition)
                narrow(self.module, condition, self.environment, True)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.evaluate(part)
        self._leave(before)

    def _bind_element(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.environment.bind(target.id, self.element(value))
            return
        self.environment.forget(each.id for each in ast.walk(target) if isinstance(each, ast.Name))
