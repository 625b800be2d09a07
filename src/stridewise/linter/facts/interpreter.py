"""Runs the statements of one function in the mind: which value a name has at each place, as far as that is sure.

Branches are joined. What a loop, a `try` or an unknown call may have changed is forgotten.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stridewise.linter.facts.conditions import narrow
from stridewise.linter.facts.effects import Effect
from stridewise.linter.facts.environment import Bound, Environment
from stridewise.linter.facts.expressions import Evaluator
from stridewise.linter.facts.scopes import Changes, breaks, changes_in, evaluated_here, kind_of, parameters, rebound
from stridewise.linter.facts.value import OPTIONS, OTHER, UNKNOWN, Value

if TYPE_CHECKING:
    from stridewise.linter.module import Module, Scope

_TRANSPARENT = ("torch.", "numpy.", "tempfile.", "threading.", "warnings.", "io.", "zipfile.", "unittest.mock.")
"""Libraries whose context managers let every exception through."""
_CONTEXTS = ("nullcontext", "closing", "redirect_stdout", "redirect_stderr", "chdir")
"""Those of contextlib that do. Any other may go on behind the statement after an exception in it."""


def values(module: "Module", scope: "Scope") -> dict[ast.expr, Value]:
    """What is known of each expression of a function, a class's body or a module, nested functions left out."""
    interpreter = _Interpreter(module, scope)
    try:
        interpreter.run(scope)
    except RecursionError:  # an expression of thousands of parts
        return {}
    return interpreter.evaluator.values


class _Interpreter:
    """One run over one scope. What runs a statement tells whether control comes out at its end."""

    def __init__(self, module: "Module", scope: "Scope") -> None:
        is_function = isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        self._module = module
        self._environment = Environment(parameters(scope.args, module) if is_function else None)  # type: ignore[union-attr]
        self.evaluator = Evaluator(module, scope, self._environment)
        self._evaluate = self.evaluator.evaluate
        self._by_type: dict[type[ast.stmt], Callable[[Any], bool]] = {
            ast.Expr: self._expression,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.Return: self._return,
            ast.Raise: self._ends,
            ast.Continue: self._ends,
            ast.Break: self._ends,
            ast.If: self._if,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Match: self._match,
            ast.Assert: self._assert,
            ast.FunctionDef: self._definition,
            ast.AsyncFunctionDef: self._definition,
            ast.ClassDef: self._definition,
            ast.Global: self._global,
            ast.Nonlocal: self._global,
            ast.Delete: self._delete,
            ast.Import: self._import,
            ast.ImportFrom: self._import,
        }

    def run(self, scope: "Scope") -> None:
        if isinstance(scope, ast.Lambda):
            self._evaluate(scope.body)
        else:
            self._body(scope.body)

    def _body(self, statements: Sequence[ast.stmt]) -> bool:
        """Run statements. What can't be reached is run too, so that something is known of it, on what is left."""
        reached = True
        by_type = self._by_type
        for statement in statements:
            run = by_type.get(type(statement))
            if run is None:
                self.evaluator.children(statement)
            elif not run(statement):
                reached = False
        return reached

    def _branch(self, *bodies: Sequence[ast.stmt]) -> bool:
        """Run statements that may not be, or not once: the caller leaves or merges what they bound."""
        self._environment.branch()
        reached = [self._body(body) for body in bodies]
        return all(reached)

    # Statements -----------------------------------------------------------------------------------------------------

    def _expression(self, statement: ast.Expr) -> bool:
        self._evaluate(statement.value)
        return True

    def _return(self, statement: ast.Return) -> bool:
        if statement.value is not None:
            self._evaluate(statement.value)
        return False

    def _ends(self, statement: ast.stmt) -> bool:
        self.evaluator.children(statement)
        return False

    def _assign(self, statement: ast.Assign) -> bool:
        value = self._evaluate(statement.value)
        for target in statement.targets:
            self._bind(target, value, statement.value)
        return True

    def _annotated(self, statement: ast.AnnAssign) -> bool:
        if statement.value is not None:
            value = self._evaluate(statement.value)
            if value.kind == "unknown":
                value = value._replace(kind=kind_of(statement.annotation, self._module))
            self._bind(statement.target, value, statement.value)
        return True

    def _augmented(self, statement: ast.AugAssign) -> bool:
        operands = self._evaluate(statement.target), self._evaluate(statement.value)
        if isinstance(statement.target, ast.Name):
            before = operands[0]
            if before.kind == "other" or isinstance(statement.op, ast.MatMult):
                # A new value: numbers have no other way, and tensors none in place for `@=`.
                effect = Effect.FRESH if isinstance(statement.op, ast.MatMult) else Effect.LIKE
                before = self.evaluator.operator(effect, statement.value, operands)._replace(node=None)
            elif before.kind == "unknown":
                before = UNKNOWN
            # In place for a tensor: it stays where it is, as it lies.
            self._environment.bind(statement.target.id, before)
        return True

    def _if(self, statement: ast.If) -> bool:
        self._evaluate(statement.test)
        ends, every = [], []
        for truth, body in ((True, statement.body), (False, statement.orelse)):
            self._environment.branch()
            narrow(self._module, statement.test, self._environment, truth)
            reached = self._body(body)
            every.append(self._environment.leave())
            if reached:
                ends.append(every[-1])
        self._environment.merge(ends or every)
        return bool(ends)

    def _for(self, statement: ast.For | ast.AsyncFor) -> bool:
        value = self._evaluate(statement.iter)
        self._forget(changes_in([statement.target, *statement.body]))
        self._environment.branch()
        self._bind(statement.target, self.evaluator.element(value), None)
        self._body(statement.body)
        self._environment.leave()
        return self._else(statement)

    def _while(self, statement: ast.While) -> bool:
        changes = changes_in([statement.test, *statement.body])
        self._forget(changes)
        self._evaluate(statement.test)
        self._environment.branch()
        narrow(self._module, statement.test, self._environment, True)
        self._body(statement.body)
        self._environment.leave()
        # After a break the body has bound names again that the test did.
        self._environment.forget(changes.names)
        is_endless = isinstance(statement.test, ast.Constant) and statement.test.value
        return self._else(statement) and (not is_endless or breaks(statement))

    def _else(self, statement: ast.For | ast.AsyncFor | ast.While) -> bool:
        if not statement.orelse:
            return True
        without = breaks(statement)
        self._environment.branch()
        reached = self._body(statement.orelse)
        changes = self._environment.leave()
        self._environment.merge([*([changes] if reached or not without else []), *([{}] if without else [])])
        return reached or without

    def _forget(self, changes: Changes) -> None:
        """Know no more than what holds before some statements, behind them and wherever they were left."""
        self._environment.forget(changes.names)
        if changes.relays:
            self._environment.forget_layouts()

    def _try(self, statement: ast.Try | ast.TryStar) -> bool:
        environment = self._environment
        ends, every = [], []
        interrupted = changes_in(statement.body) if statement.handlers else None
        reached = self._branch(statement.body, statement.orelse)
        every.append(environment.leave())
        if reached:
            ends.append(every[-1])
        for handler in statement.handlers:
            environment.branch()
            assert interrupted is not None
            self._forget(interrupted)
            if handler.type is not None:
                self._evaluate(handler.type)
            if handler.name is not None:
                environment.bind(handler.name, OTHER)
            reached = self._body(handler.body)
            every.append(environment.leave())
            if reached:
                ends.append(every[-1])
        if statement.finalbody:
            # It runs as well when something before it did not come to its end.
            environment.branch()
            self._forget(changes_in([*statement.body, *statement.orelse, *statement.handlers]))
            self._body(statement.finalbody)
            environment.leave()
        environment.merge(ends or every)
        return self._body(statement.finalbody) and bool(ends)

    def _with(self, statement: ast.With | ast.AsyncWith) -> bool:
        swallows = False
        for item in statement.items:
            self._evaluate(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, UNKNOWN, None)
            swallows = swallows or not self._is_transparent(item.context_expr)
        if not swallows:
            return self._body(statement.body)
        self._branch(statement.body)
        self._environment.leave()
        self._forget(changes_in(statement.body))
        return True

    def _is_transparent(self, context: ast.expr) -> bool:
        """Whether an exception in a `with` is sure to leave it."""
        function = context.func if isinstance(context, ast.Call) else context
        name = self.evaluator.name(function)
        if name is None:
            return isinstance(function, ast.Name) and function.id == "open"
        return name.startswith(_TRANSPARENT) or name in [f"contextlib.{each}" for each in _CONTEXTS]

    def _match(self, statement: ast.Match) -> bool:
        environment = self._environment
        self._evaluate(statement.subject)
        # A case that fails may have bound some of its names.
        parts = [part for case in statement.cases for part in (case.pattern, case.guard) if part is not None]
        self._forget(changes_in(parts))
        ends: list[Bound] = [{}]
        for case in statement.cases:
            environment.branch()
            if case.guard is not None:
                self._evaluate(case.guard)
                narrow(self._module, case.guard, environment, True)
            reached = self._body(case.body)
            changes = environment.leave()
            if reached:
                ends.append(changes)
        environment.merge(ends)
        return True

    def _assert(self, statement: ast.Assert) -> bool:
        self.evaluator.children(statement)
        narrow(self._module, statement.test, self._environment, True)
        return True

    def _definition(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        for expression in evaluated_here(statement):
            self._evaluate(expression)
        self._environment.bind(statement.name, OTHER)
        if changes_in(statement.body).relays:
            self.evaluator.relayout_later()
        self._environment.share(rebound(statement))
        return True

    def _global(self, statement: ast.Global | ast.Nonlocal) -> bool:
        self._environment.share(statement.names)
        return True

    def _delete(self, statement: ast.Delete) -> bool:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self._environment.bind(target.id, None)
            else:
                self.evaluator.children(target)
        return True

    def _import(self, statement: ast.Import | ast.ImportFrom) -> bool:
        for alias in statement.names:  # what it stands for is asked of the module
            self._environment.bind((alias.asname or alias.name).partition(".")[0], None)
        return True

    # Targets --------------------------------------------------------------------------------------------------------

    def _bind(self, target: ast.expr, value: Value, source: ast.expr | None) -> None:
        """Assign a value to a target. `source` is the expression it came from, if that was this statement's."""
        if isinstance(target, ast.Name):
            self._environment.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = self._parts(target, source)
            for at, element in enumerate(target.elts):
                if parts is None:
                    self._bind(element, self.evaluator.element(value, at), None)
                else:
                    self._bind(element, self.evaluator.values.get(parts[at], UNKNOWN), parts[at])
        elif isinstance(target, ast.Starred):
            self._bind(target.value, UNKNOWN, None)
        else:
            self._evaluate(target)
            base = target.value if isinstance(target, ast.Subscript) else None
            if isinstance(base, ast.Name) and self.evaluator.values[base] is OPTIONS:
                self._environment.forget([base.id])
            if isinstance(target, ast.Attribute) and target.attr == "data":
                self.evaluator.relayout()

    def _parts(self, target: ast.Tuple | ast.List, source: ast.expr | None) -> Sequence[ast.expr] | None:
        """The expressions that are assigned to each part of a target, where these are written one by one."""
        if not isinstance(source, (ast.Tuple, ast.List)) or len(source.elts) != len(target.elts):
            return None
        starred: Iterable[ast.expr] = (*source.elts, *target.elts)
        return None if any(isinstance(each, ast.Starred) for each in starred) else source.elts
