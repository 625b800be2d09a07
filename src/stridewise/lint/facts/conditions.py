"""What a condition tells of values when it holds, and when it does not: `x.is_contiguous()`."""

import ast
from typing import TYPE_CHECKING

from stridewise.lint.facts.value import State, Value

if TYPE_CHECKING:
    from stridewise.lint.facts.expressions import Evaluator


def narrow(evaluator: "Evaluator", test: ast.expr, environment: dict[str, Value], truth: bool) -> dict[str, Value]:
    """What is known where a test came out as `truth`: a new environment."""
    narrowed = dict(environment)
    _narrow(evaluator, test, narrowed, truth)
    return narrowed


def _narrow(evaluator: "Evaluator", test: ast.expr, environment: dict[str, Value], truth: bool) -> None:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _narrow(evaluator, operand, environment, not truth)
        case ast.BoolOp(op=op, values=parts) if isinstance(op, ast.And) == truth:
            for part in parts:  # all of `a and b` hold; none of `a or b` does where that is false
                _narrow(evaluator, part, environment, truth)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="is_contiguous")) if truth:
            state = contiguity(test)
            if state is not None:
                before = environment.get(name, Value())
                environment[name] = before._replace(kind="tensor", state=state, sure=True)


def contiguity(call: ast.Call) -> State | None:
    """Which state a call of `contiguous` or `is_contiguous` is about; None if its memory format is not known."""
    formats = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "memory_format")]
    if len(formats) != len(call.args) + len(call.keywords) or len(formats) > 1:
        return None
    return memory_format(formats[0]) if formats else State.CONTIGUOUS


def memory_format(node: ast.expr) -> State | None:
    """The state that an argument such as `torch.channels_last` names."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return {
        "contiguous_format": State.CONTIGUOUS,
        "channels_last": State.CHANNELS_LAST,
        "channels_last_3d": State.CHANNELS_LAST,
    }.get(name or "")
