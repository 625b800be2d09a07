"""Runs the statements of one function in the mind: which value a name has at each place, as far as that is sure.

Branches are joined. What a loop, a `try` or an unknown call may have changed is forgotten.
"""

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stridewise.lint.facts.conditions import narrow
from stridewise.lint.facts.effects import RELAYOUTS
from stridewise.lint.facts.expressions import Evaluator
from stridewise.lint.facts.value import OTHER, UNKNOWN, Kind, State, Value, join

if TYPE_CHECKING:
    from stridewise.lint.module import Module, Scope

Environment = dict[str, Value]
_KINDS: dict[str, Kind] = {
    "Tensor": "tensor",
    "torch.Tensor": "tensor",
    "np.ndarray": "array",
    "numpy.ndarray": "array",
    "ndarray": "array",
    **dict.fromkeys(("int", "float", "bool", "str", "bytes", "dict", "list", "tuple"), "other"),
}


def values(module: "Module", scope: "Scope") -> dict[ast.expr, Value]:
    """What is known of each expression of a function, a class's body or a module, nested functions left out."""
    interpreter = _Interpreter(module, scope)
    try:
        interpreter.run(scope)
    except RecursionError:  # an expression of thousands of parts
        return {}
    return interpreter.evaluator.values


class _Interpreter:
    """One run over one scope. `_do` methods tell whether control comes out at the end of a statement."""

    def __init__(self, module: "Module", scope: "Scope") -> None:
        self.evaluator = Evaluator(module, scope)
        self._shared: set[str] = set()
        """Names that a nested function may bind anew whenever it is called."""

    def run(self, scope: "Scope") -> None:
        environment: Environment = {}
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            environment = parameters(scope.args)
        if isinstance(scope, ast.Lambda):
            self.evaluator.evaluate(scope.body, environment)
        else:
            self._body(scope.body, environment)

    def _body(self, statements: Sequence[ast.stmt], environment: Environment) -> bool:
        """Run statements. What can't be reached is run too, so that something is known of it, on what is left."""
        reached = True
        for statement in statements:
            reached = self._statement(statement, environment) and reached
        return reached

    def _statement(self, statement: ast.stmt, environment: Environment) -> bool:
        match statement:
            case ast.Assign(targets=targets, value=expression):
                value = self._evaluate(expression, environment)
                for target in targets:
                    self._assign(target, value, expression, environment)
            case ast.AnnAssign(target=target, value=annotated):
                if annotated is not None:
                    value = self._evaluate(annotated, environment)
                    if value.kind == "unknown":
                        value = value._replace(kind=_kind(statement.annotation))
                    self._assign(target, value, annotated, environment)
            case ast.AugAssign(target=target, value=expression):
                self._evaluate(expression, environment)
                if isinstance(target, ast.Name):
                    before = environment.get(target.id, UNKNOWN)
                    # In place for a tensor: it stays where it is, as it lies.
                    environment[target.id] = before if before.kind == "tensor" else UNKNOWN
                else:
                    self._evaluate_target(target, environment)
            case ast.Return(value=returned):
                if returned is not None:
                    self._evaluate(returned, environment)
                return False
            case ast.Raise():
                self._each_expression(statement, environment)
                return False
            case ast.Continue() | ast.Break():
                return False
            case ast.If():
                return self._if(statement, environment)
            case ast.For() | ast.AsyncFor():
                self._evaluate(statement.iter, environment)
                self._loop([statement.target, *statement.body, *statement.orelse], environment)
                self._body(statement.body, dict(environment))
                self._body(statement.orelse, dict(environment))
                self._evaluate_target(statement.target, environment)
            case ast.While():
                self._loop([*statement.body, *statement.orelse], environment)
                self._evaluate(statement.test, environment)
                self._body(statement.body, narrow(self.evaluator, statement.test, environment, True))
                self._body(statement.orelse, dict(environment))
                return not (isinstance(statement.test, ast.Constant) and statement.test.value) or _breaks(statement)
            case ast.Try() | ast.TryStar():
                return self._try(statement, environment)
            case ast.With() | ast.AsyncWith():
                for item in statement.items:
                    self._evaluate(item.context_expr, environment)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, UNKNOWN, None, environment)
                # A context may swallow an exception: what its body did is not sure then, but nearly none does.
                return self._body(statement.body, environment)
            case ast.Match():
                return self._match(statement, environment)
            case ast.Assert():
                self._evaluate(statement.test, environment)
                environment.update(narrow(self.evaluator, statement.test, environment, True))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for expression in _evaluated_here(statement):
                    self._evaluate(expression, environment)
                environment[statement.name] = OTHER
                self._share(_rebound(statement), environment)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self._share(names, environment)
            case ast.Delete(targets=targets):
                self._forget((target.id for target in targets if isinstance(target, ast.Name)), environment)
            case ast.Import() | ast.ImportFrom():
                self._forget((alias.asname or alias.name for alias in statement.names), environment)
            case _:
                self._each_expression(statement, environment)
        return True

    def _if(self, statement: ast.If, environment: Environment) -> bool:
        self._evaluate(statement.test, environment)
        then = narrow(self.evaluator, statement.test, environment, True)
        otherwise = narrow(self.evaluator, statement.test, environment, False)
        ends = [
            branch
            for branch, body in ((then, statement.body), (otherwise, statement.orelse))
            if self._body(body, branch)
        ]
        _replace(environment, ends or [then, otherwise])
        return bool(ends)

    def _try(self, statement: ast.Try | ast.TryStar, environment: Environment) -> bool:
        before = dict(environment)
        reached = self._body(statement.body, environment)
        self._forget(assigned(statement.body), before)
        ends = []
        if self._body(statement.orelse, environment) and reached:
            ends.append(environment)
        for handler in statement.handlers:
            branch = dict(before)
            if handler.type is not None:
                self._evaluate(handler.type, branch)
            if self._body(handler.body, branch):
                ends.append(branch)
        _replace(environment, ends or [before])
        return self._body(statement.finalbody, environment) and bool(ends)

    def _match(self, statement: ast.Match, environment: Environment) -> bool:
        self._evaluate(statement.subject, environment)
        ends = [dict(environment)]
        for case in statement.cases:
            branch = dict(environment)
            self._forget(_captures(case.pattern), branch)
            if case.guard is not None:
                self._evaluate(case.guard, branch)
            if self._body(case.body, branch):
                ends.append(branch)
        _replace(environment, ends)
        return True

    def _loop(self, parts: Sequence[ast.AST], environment: Environment) -> None:
        """Forget before a loop what its body may have changed when it runs again."""
        self._forget(assigned(parts), environment)
        if any(_is_relayout(node) for part in parts for node in ast.walk(part)):
            _forget_layouts(environment)

    def _assign(self, target: ast.expr, value: Value, source: ast.expr | None, environment: Environment) -> None:
        if isinstance(target, ast.Name):
            if target.id not in self._shared:
                environment[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
            alike = len(parts) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in parts)
            values = [self.evaluator.values.get(part, UNKNOWN) for part in parts]
            for at, element in enumerate(target.elts):
                if alike:
                    self._assign(element, values[at], parts[at], environment)
                else:
                    self._assign(element, self.evaluator.element(value), None, environment)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, UNKNOWN, None, environment)
        else:
            self._evaluate_target(target, environment)
            if isinstance(target, ast.Attribute) and target.attr == "data":
                _forget_layouts(environment)

    def _evaluate_target(self, target: ast.expr, environment: Environment) -> None:
        """Look at what stands in the target of an assignment: `x.t()[i]`."""
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            self._evaluate(target, environment)

    def _evaluate(self, expression: ast.expr, environment: Environment) -> Value:
        value = self.evaluator.evaluate(expression, environment)
        if self.evaluator.relayouts:
            self.evaluator.relayouts = False
            _forget_layouts(environment)
        return value

    def _each_expression(self, statement: ast.stmt, environment: Environment) -> None:
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                self._evaluate(child, environment)

    def _share(self, names: Iterable[str], environment: Environment) -> None:
        self._shared.update(names)
        self._forget(self._shared, environment)

    def _forget(self, names: Iterable[str], environment: Environment) -> None:
        for name in names:
            environment.pop(name, None)


def parameters(arguments: ast.arguments) -> Environment:
    """What is known of a function's parameters."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found = {each.arg: Value(_kind(each.annotation), op="parameter") for each in every}
    rest = [each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return found | dict.fromkeys(rest, OTHER)


def assigned(parts: Iterable[ast.AST]) -> set[str]:
    """The names that some statements bind, those that nested functions may bind included."""
    found: set[str] = set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar)):
                found.add(node.name or "")
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name)
    return found


def _is_relayout(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in RELAYOUTS or (node.attr == "data" and isinstance(node.ctx, ast.Store))
    return False


def _replace(environment: Environment, branches: Sequence[Environment]) -> None:
    """Make an environment what is known after one of several branches."""
    first, *others = branches
    joined = {}
    for name, value in first.items():
        for other in others:
            if name not in other:
                break
            value = join(value, other[name])
        else:
            joined[name] = value
    environment.clear()
    environment.update(joined)


def _forget_layouts(environment: Environment) -> None:
    for name, value in environment.items():
        if value.state is not State.UNKNOWN:
            environment[name] = Value(value.kind)


def _kind(annotation: ast.expr | None) -> Kind:
    """What an annotation says a value is; `Tensor | None` is a tensor where it is used as one."""
    match annotation:
        case ast.Constant(value=str(text)):
            return _KINDS.get(text.removesuffix("| None").strip(), "unknown")
        case ast.Name() | ast.Attribute():
            return _KINDS.get(ast.unparse(annotation), "unknown")
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _kind(left)
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return _kind(inner)
    return "unknown"


def _evaluated_here(statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    """What of a definition runs where it stands."""
    if isinstance(statement, ast.ClassDef):
        return [*statement.decorator_list, *statement.bases]
    defaults = [default for default in statement.args.kw_defaults if default is not None]
    return [*statement.decorator_list, *statement.args.defaults, *defaults]


def _rebound(statement: ast.stmt) -> set[str]:
    """The names around a definition that it may bind anew."""
    nodes = (node for node in ast.walk(statement) if isinstance(node, (ast.Nonlocal, ast.Global)))
    return {name for node in nodes for name in node.names}


def _captures(pattern: ast.pattern) -> set[str]:
    return assigned([pattern])


def _breaks(loop: ast.While) -> bool:
    return any(isinstance(node, ast.Break) for part in loop.body for node in ast.walk(part))
