"""The tensors among a callable's arguments, and the call with others in their place."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stridewise.checks.operators.case import Operand
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.results.checks import Role

MOST_OPERANDS = 24
"""Those beyond stay as they are; a module may have thousands of parameters."""


class Bound:
    """A callable with its arguments, whose tensors can be replaced by name."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        from torch import nn

        self.notes: list[str] = []
        self.module = fn if isinstance(fn, nn.Module) else getattr(fn, "__self__", None)
        if not isinstance(self.module, nn.Module) or (fn is not self.module and not inspect.ismethod(fn)):
            self.module = None
        self.fn = fn
        self._call = _callable(fn)
        self._method = getattr(fn, "__name__", None) if self.module is not None and fn is not self.module else None
        self.args, self.kwargs = args, dict(kwargs)
        self.tensors: dict[str, Tensor] = {}
        """By name, in the order of the arguments. One that is given twice has the name of its first place."""
        self.roles: dict[str, Role] = {}
        self._collect(fn)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What the tensors are."""
        return tuple(
            Operand(
                name,
                self.roles[name],
                tuple(tensor.shape),
                str(tensor.dtype).removeprefix("torch."),
                tensor.is_floating_point() or tensor.is_complex(),
                bool(tensor.requires_grad),
            )
            for name, tensor in self.tensors.items()
        )

    @property
    def is_of_library(self) -> bool:
        """Whether it is an operator of `torch.library`."""
        return _schema(self.fn) is not None

    @property
    def written(self) -> frozenset[str]:
        """The operands that its schema says it writes; none if it has no schema."""
        schema = _schema(self.fn)
        if schema is None:
            return frozenset()
        names = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
        return frozenset(operand for operand in self.tensors if re.split(r"[.\[]", operand)[0] in names)

    def call(self, tensors: Mapping[str, Tensor], seed: int = 0) -> Any:
        """Call it with other tensors in the place of some. Generators among its arguments start from the seed."""
        new = {id(self.tensors[name]): tensor for name, tensor in tensors.items()}
        args, kwargs = _replaced(self.args, new), _replaced(self.kwargs, new)
        with _seeded((*args, *kwargs.values()), seed):
            return self._called(args, kwargs, tensors)

    def _called(self, args: Any, kwargs: Any, tensors: Mapping[str, Tensor]) -> Any:
        import torch

        if self.module is None:
            return self._call(*args, **kwargs)
        own = {name.removeprefix("self."): tensor for name, tensor in tensors.items() if name in self._of_module}
        # A forward may write its buffers: those of the program stay as they are.
        own |= {name: value.clone() for name, value in self.module.named_buffers() if name not in own}
        if self._method is None:
            return torch.func.functional_call(self.module, own, args, kwargs)
        return torch.func.functional_call(_as_module(self.module, self._method), _prefixed(own), args, kwargs)

    def _collect(self, fn: Callable[..., Any]) -> None:
        seen: set[int] = set()
        for name, tensor in _named(self._bound(fn)):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if reason := not_strided(tensor):
                self.notes.append(f"`{name}` is left as it is: it is {reason}.")
            elif len(self.tensors) < MOST_OPERANDS:
                self.tensors[name] = tensor
                self.roles[name] = "out" if name == "out" or name.startswith(("out[", "out.")) else "input"
        self._of_module: set[str] = set()
        if self.module is not None:
            found: list[tuple[str, Tensor, Role]] = [(n, p, "parameter") for n, p in self.module.named_parameters()]
            found += [(n, b, "buffer") for n, b in self.module.named_buffers()]
            for name, tensor, role in found:
                if not_strided(tensor) or id(tensor) in seen:
                    continue
                if len(self.tensors) >= MOST_OPERANDS:
                    self.notes.append(f"Parameters from `{name}` on keep their layout: {MOST_OPERANDS} operands vary.")
                    break
                seen.add(id(tensor))
                key = name if name not in self.tensors else f"self.{name}"
                self.tensors[key], self.roles[key] = tensor, role
                self._of_module.add(key)
        if not self.tensors:
            raise UsageError(
                " ".join(("There is no operand to lay out: the sample holds no strided tensor.", *self.notes[:1])),
                expected="Expected: arguments of which at least one is a tensor.",
            )

    def _bound(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """The arguments by their names, as the signature or the schema has them."""
        names: list[str] | None = None
        schema = _schema(fn)
        if schema is not None:
            names = [argument.name for argument in schema.arguments]
        else:
            try:
                bound = inspect.signature(_signature_of(fn)).bind(*self.args, **self.kwargs)
            except (TypeError, ValueError):
                pass
            else:
                return _spread(bound)
        names = (names or [])[: len(self.args)]
        names += [f"input {at}" for at in range(len(names), len(self.args))]
        return dict(zip(names, self.args, strict=True)) | self.kwargs


def _schema(fn: Any) -> Any:
    """Of an operator of torch.library: an overload, or what has one."""
    overload = getattr(fn, "_opoverload", fn)
    schema = getattr(overload, "_schema", None) or getattr(getattr(overload, "default", None), "_schema", None)
    return schema if hasattr(schema, "arguments") else None


@contextlib.contextmanager
def _seeded(values: tuple[Any, ...], seed: int) -> Iterator[None]:
    """Generators that start from a seed, and are afterwards where they were."""
    import torch

    states = [(value, value.get_state()) for value in values if isinstance(value, torch.Generator)]
    for generator, _ in states:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def _as_module(module: Any, method: str) -> Any:
    """A module whose forward is a method of another: parameters can be swapped around it."""
    from torch import nn

    class Method(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.module, method)(*args, **kwargs)

    return Method()


def _prefixed(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"module.{name}": tensor for name, tensor in own.items()}


def _callable(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
        applied: Callable[..., Any] = fn.apply
        return applied
    if not callable(fn):
        raise UsageError(f"{type(fn).__name__} can't be called.", expected="Expected: a function, a module or an op.")
    return fn


def _signature_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
        forward: Callable[..., Any] = fn.forward
        takes_context = "setup_context" not in vars(fn)
        return _without_first(forward) if takes_context else forward
    if isinstance(fn, torch.nn.Module):
        return fn.forward
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):  # built in: torch has signatures of those as functions with the same arguments
        stand_in: Callable[..., Any] = torch.overrides.get_testing_overrides().get(fn, fn)
        return stand_in
    return fn


def _without_first(forward: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(forward)
    _, *rest = signature.parameters.values()

    def stand_in() -> None: ...

    stand_in.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    return stand_in


def _spread(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments by name; those of `**kwargs` as if they were named."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def not_strided(tensor: Tensor) -> str | None:
    """Why a tensor has no layout to vary; None if it has one."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(tensor).__name__}, which may decide itself what its operators do"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
    if tensor.is_meta:
        return "on the meta device, where values are not kept"
    if tensor.is_quantized:
        return "quantized"
    return None if _has_kernels(str(tensor.dtype)) else f"of {tensor.dtype}, for which torch has few kernels"


@functools.cache
def _has_kernels(dtype: str) -> bool:
    """Whether tensors of a dtype can be laid out and compared."""
    import torch

    try:
        probe = torch.zeros(2, dtype=getattr(torch, dtype.removeprefix("torch.")))
        probe[torch.tensor([0])] = probe[1:].clone()
        probe.sort() if not probe.is_complex() else probe.abs()
        return bool((probe == probe).all() and torch.isfinite(probe).all())
    except (RuntimeError, NotImplementedError):
        return False


# --------------------------------------------------------------------------------------------------- nested values


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in values.items():
        yield from tensors_of(value, name)


def tensors_of(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a nested value, each with its path: `x`, `hidden[0]`, `state.weight`."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from tensors_of(entry, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        for at, entry in enumerate(value):
            yield from tensors_of(entry, f"{name}.{fields[at]}" if fields else f"{name}[{at}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name, None), f"{name}.{field.name}")


def _replaced(value: Any, new: Mapping[int, Tensor]) -> Any:
    """The same nested value with other tensors; what holds none is the same object."""
    import torch

    if isinstance(value, torch.Tensor):
        return new.get(id(value), value)
    if not any(True for _ in tensors_of(value, "")):
        return copy.copy(value) if type(value) in (list, dict, set) else value  # it may write into them
    if isinstance(value, Mapping):
        entries = {key: _replaced(entry, new) for key, entry in value.items()}
        if type(value) is dict:
            return entries
        other: Any = copy.copy(value)
        other.update(entries)
        return other
    if isinstance(value, (list, tuple)):
        items = [_replaced(entry, new) for entry in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(changed, field.name, _replaced(getattr(value, field.name), new))
    return changed
