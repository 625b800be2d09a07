"""What a condition tells of values when it holds, and when it does not: `x.is_contiguous()`."""

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stridewise.linter.facts.scopes import changes_in
from stridewise.linter.facts.value import UNKNOWN, Kind, State
from stridewise.linter.names import last_name

if TYPE_CHECKING:
    from stridewise.linter.facts.environment import Environment
    from stridewise.linter.module import Module

_TYPES: dict[str, Kind] = {"torch.Tensor": "tensor", "torch.nn.Parameter": "tensor", "numpy.ndarray": "array"}


def narrow(module: "Module", test: ast.expr, environment: "Environment", truth: bool) -> None:
    """Put into an environment what is known where a test came out as `truth`."""
    parts = [*_parts(test, truth)]
    first = next((at for at, (part, holds) in enumerate(parts) if holds and _tells(part)), len(parts))
    changed: set[str] = set()
    for part, holds in reversed(parts[first:]):
        # What a part told is over where one behind it gave the name another value, or the tensor another layout.
        if len(parts) > first + 1:
            names, relays = changes_in([part])
            changed |= names
            if relays:
                return
        if holds and _tells(part):
            _narrow(module, part, environment, changed)


def _parts(test: ast.expr, truth: bool) -> Iterator[tuple[ast.expr, bool]]:
    """What held, or did not, where a test came out as `truth`, in the order in which it was evaluated."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(operand, not truth)
        case ast.BoolOp(op=op, values=parts) if isinstance(op, ast.And) == truth:
            for part in parts:  # all of `a and b` hold; none of `a or b` does where that is false
                yield from _parts(part, truth)
        case _:
            yield test, truth


def _tells(part: ast.expr) -> bool:
    match part:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="is_contiguous")):
            return True
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(), _]) | ast.Call(args=[ast.Name()]):
            return True
    return False


def _narrow(module: "Module", part: ast.expr, environment: "Environment", changed: set[str]) -> None:
    match part:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="is_contiguous")) if name not in changed:
            state = contiguity(part)
            if state is not None:
                before = environment.known.get(name, UNKNOWN)
                regular = before.regular and before.state is state
                environment.bind(name, before._replace(kind="tensor", state=state, sure=True, regular=regular))
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), kind]) if name not in changed:
            _of_kind(environment, name, _TYPES.get(module.name(kind) or ""))
        case ast.Call(func=function, args=[ast.Name(id=name)]) if name not in changed:
            if module.name(function) == "torch.is_tensor":
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
    return {
        "contiguous_format": State.CONTIGUOUS,
        "channels_last": State.CHANNELS_LAST,
        "channels_last_3d": State.CHANNELS_LAST,
    }.get(last_name(node))
