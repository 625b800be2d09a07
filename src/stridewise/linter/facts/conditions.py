"""What a condition tells of values when it holds, and when it does not: `x.is_contiguous()`."""

import ast
from typing import TYPE_CHECKING

from stridewise.linter.facts.value import UNKNOWN, Kind, State

if TYPE_CHECKING:
    from stridewise.linter.facts.environment import Environment
    from stridewise.linter.module import Module

_TYPES: dict[str, Kind] = {"torch.Tensor": "tensor", "torch.nn.Parameter": "tensor", "numpy.ndarray": "array"}


def narrow(module: "Module", test: ast.expr, environment: "Environment", truth: bool) -> None:
    """Put into an environment what is known where a test came out as `truth`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            narrow(module, operand, environment, not truth)
        case ast.BoolOp(op=op, values=parts) if isinstance(op, ast.And) == truth:
            for part in parts:  # all of `a and b` hold; none of `a or b` does where that is false
                narrow(module, part, environment, truth)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="is_contiguous")) if truth:
            state = contiguity(test)
            if state is not None:
                before = environment.known.get(name, UNKNOWN)
                environment.bind(name, before._replace(kind="tensor", state=state, sure=True))
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), kind]) if truth:
            _of_kind(environment, name, _TYPES.get(module.name(kind) or ""))
        case ast.Call(func=function, args=[ast.Name(id=name)]) if truth and module.name(function) == "torch.is_tensor":
            _of_kind(environment, name, "tensor")


def _of_kind(environment: "Environment", name: str, kind: Kind | None) -> None:
    if kind is not None:
        environment.bind(name, environment.known.get(name, UNKNOWN)._replace(kind=kind))


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
