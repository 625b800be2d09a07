"""Operators and samples by their names, and the way of both into another interpreter."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from stridewise.checks.operators.definition import definition_of
from stridewise.checks.operators.options import Options
from stridewise.errors import UsageError
from stridewise.source.target import PLACES, load_module, split_target

if TYPE_CHECKING:
    from stridewise.checks.operators.probe import Probe

_WHAT = "a function, a method, a module or an operator of torch.library"
_SAMPLE = "a function that returns the arguments: a tuple, a dict, or both as a pair"


def load_op(target: str, sample: str | None = None) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]:
    """The operator that a target names, its arguments, and its name. Raises UsageError where there is none.

    `sample` names a function that gives the arguments; None for one beside the operator, named as it and `_sample`.
    """
    fn, name = load_callable(target)
    if sample is None:
        try:
            _member(f"{target}_sample", _SAMPLE)
        except UsageError:
            raise UsageError(
                f"There is no sample of arguments for {name}.",
                expected=f"Expected: a function {name}_sample beside it, or --sample path.py:function.",
                advice=f"As in: def {name.rpartition('.')[2]}_sample(): return (torch.randn(4, 6),)",
            ) from None
    args, kwargs = load_arguments(sample or f"{target}_sample")
    return fn, args, kwargs, name


def load_arguments(shown: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the function that a target names gives as positional and keyword arguments. Raises UsageError for others."""
    make = _member(shown, _SAMPLE)
    if not callable(make):
        raise UsageError(f"{shown} is no function.", expected=f"Expected: {_SAMPLE}.")
    if needed := _needed(make):
        raise UsageError(f"{shown} takes arguments ({', '.join(needed)}).", expected="Expected: a function without.")
    return arguments(make())


def arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a sample function returned, as positional and keyword arguments."""
    import torch

    if isinstance(sample, torch.Tensor):
        return (sample,), {}
    if isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
        return sample[0], sample[1]
    if isinstance(sample, dict):
        return (), sample
    if isinstance(sample, (tuple, list)):
        return tuple(sample), {}
    raise UsageError(f"The sample is {type(sample).__name__}.", expected=f"Expected: {_SAMPLE}.")


def _split(target: str, what: str) -> tuple[str, str]:
    if target.startswith("torch.ops.") and ":" not in target:
        return "torch", target.removeprefix("torch.")
    parts = split_target(target)
    if parts is None:
        raise UsageError(f"{target} is no target.", expected=f"Expected: {PLACES}, {what}.")
    return parts


def load_callable(target: str) -> tuple[Callable[..., Any], str]:
    """What a target names, made callable, and its name."""
    import torch

    place, name = _split(target, _WHAT)
    found = _member(target, _WHAT)
    is_class_of_modules = isinstance(found, type) and issubclass(found, torch.nn.Module)
    if is_class_of_modules:
        found = _made(found, name, place)
    elif inspect.isfunction(found) and _takes_nothing(found):
        found = found()
    if not callable(found):
        raise UsageError(f"{name} is no function in {place}.", expected=f"Expected: {PLACES}, {_WHAT}.")
    return found, name


def _member(target: str, what: str) -> Any:
    place, name = _split(target, what)
    module = load_module(place, f"Expected: {PLACES}, {what}.")
    found: Any = module
    for part in name.split("."):
        try:
            member = getattr(found, part)
        except AttributeError:
            has = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            known = f"It has {', '.join(has[:8])}." if has else f"Expected: {PLACES}, {what}."
            raise UsageError(f"{name} is not there in {place}.", expected=known) from None
        if isinstance(found, type) and inspect.isfunction(inspect.getattr_static(found, part)):
            member = getattr(_made(found, found.__qualname__, place), part)
        found = member
    return found


def _made(kind: type, name: str, place: str) -> Any:
    """An instance of a class, which is called without arguments."""
    if needed := _needed(kind):
        raise UsageError(
            f"{name} is a class that takes arguments ({', '.join(needed)}).",
            expected=f"Expected: an instance of it in {place}, such as op = {name}(…), or a function that returns one.",
        )
    return kind()


def _needed(make: Callable[..., Any]) -> list[str]:
    """The arguments without which it can't be called."""
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in parameters if each.default is each.empty and each.kind not in kinds]


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether it can't be an operator, and so has to be what makes one."""
    return not inspect.signature(function).parameters


# ------------------------------------------------------------------------------------------- to another interpreter


class _Payload(msgspec.Struct, frozen=True):
    target: str
    name: str
    options: Options
    sample: bytes


def target_of(fn: Callable[..., Any]) -> str | None:
    """`module:name` of what can be imported by it; None for what can't."""
    maker = getattr(fn, "_init_fn", None)  # of an operator of torch.library
    module = getattr(fn if maker is None else definition_of(maker), "__module__", None)
    if not isinstance(module, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    if maker is not None:
        name = next((key for key, value in getattr(found, "__dict__", {}).items() if value is fn), None)
        return f"{module}:{name}" if name else None
    name = getattr(fn, "__qualname__", None)
    if not name or "<" in name:
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is fn else None


def in_source(target: str) -> tuple[str, str]:
    """The first part of a target's name, which is imported, and the expression of it that is the operator."""
    import torch

    place, name = _split(target, _WHAT)
    first, *rest = name.split(".")
    found, text = getattr(load_module(place, ""), first), first
    for part in rest:
        if isinstance(found, type) and inspect.isfunction(inspect.getattr_static(found, part)):
            text = f"{text}()"
        found, text = getattr(found, part), f"{text}.{part}"
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        text = f"{text}.apply"
    elif (isinstance(found, type) and issubclass(found, torch.nn.Module)) or (
        inspect.isfunction(found) and _takes_nothing(found)
    ):
        text = f"{text}()"
    return first, text


def packed(target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, name: str) -> bytes:
    """What another interpreter needs to make the same probe. Raises UsageError if the sample can't be sent there."""
    import torch

    buffer = io.BytesIO()
    try:
        torch.save((args, dict(kwargs)), buffer)
    except Exception as error:
        raise UsageError(
            f"The sample can't be sent to another process: {type(error).__name__}: {error}",
            advice="Make it of tensors, numbers and containers.",
        ) from None
    return msgspec.msgpack.encode(_Payload(target, name, options, buffer.getvalue()))


def unpacked(payload: bytes) -> Probe:
    """The probe, in that other interpreter."""
    import torch

    from stridewise.checks.operators.probe import Probe

    given = msgspec.msgpack.decode(payload, type=_Payload)
    try:
        fn, _ = load_callable(given.target)
        # It comes from the process that started this one.
        args, kwargs = torch.load(io.BytesIO(given.sample), weights_only=False)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{given.target} can't be imported in a process of its own: {type(error).__name__}: {error}",
            advice="Let its module be one that other programs can import, or give contain=False.",
        ) from None
    return Probe(fn, args, kwargs, given.options, given.name)
