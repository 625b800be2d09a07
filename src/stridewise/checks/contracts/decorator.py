"""`expect_layout`: what layout a function, a class or an operator asks of its tensors, held when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from msgspec.structs import replace

from stridewise.checks.contracts import ops, wrappers
from stridewise.checks.contracts.contract import Contract, Export, Mode, Slot, slots_of
from stridewise.checks.contracts.kinds import Asks, Kind, parse
from stridewise.errors import UsageError

_Target = TypeVar("_Target")


def expect_layout(
    *misplaced: object, grads: Asks | None = None, mode: Mode = "raise", export: Export = None, **kinds: Asks
) -> Callable[[_Target], _Target]:
    """Hold what layout a callable asks of its tensors.

    Each keyword names an argument and says what it has to be: `contiguous`, `channels_last`, `channels_last_3d`,
    `dense`, `last_stride_1`, `non_overlapping`, `same_as("other")`, or a function of the tensor that returns a bool.
    It holds for defaults, for `*args` and `**kwargs` under their own names, and for each tensor in a list, tuple or
    dict; None passes. `grads` is asked of the gradient that comes into each output.

    What is decorated may be a function or method, an `autograd.Function`, an `nn.Module` class (its `forward`), or an
    operator of `torch.library`, for which a callable is given back.

    With `mode="raise"` another layout is a ContractError; with `warn` a LayoutWarning, once a place; with `convert` the
    callable gets a copy that fulfils the contract, through which gradients flow, and what it writes to the copy is
    written to the caller's tensor too. Under `torch.export` checks would vanish: `raise` and `warn` refuse there with a
    UsageError, unless `export="check"` puts an operator in the program that checks; `convert` puts one that converts.

    Raises UsageError for a kind or an argument that does not exist.
    """
    if misplaced:
        raise UsageError(
            "expect_layout() was not told what to hold.", expected='Expected: as in @expect_layout(x="contiguous").'
        )
    _check_options(mode, export)
    asked = {name: parse(name, asks) for name, asks in kinds.items()}
    of_grads = None if grads is None else parse("grads", grads)
    if not asked and of_grads is None:
        raise UsageError('expect_layout asks nothing; name an argument and its layout, as in x="contiguous".')
    for name, kind in (*asked.items(), ("grads", of_grads)):
        if mode == "convert" and kind is not None and kind.predicate is not None:
            raise UsageError(
                f'expect_layout: mode="convert" can\'t make what the function for {name} asks; use "raise".'
            )
    if of_grads is not None and of_grads.other is not None:
        raise UsageError("expect_layout: grads can't be same_as another argument; name a layout.")

    def decorate(target: _Target) -> _Target:
        ops.register_ops()
        held: _Target = _Decoration(asked, of_grads, mode, export).of(target)
        return held

    return decorate


def _check_options(mode: object, export: object) -> None:
    if mode not in get_args(Mode):
        raise UsageError(f'expect_layout: mode={mode!r} is none of "raise", "convert" and "warn".')
    if export not in (None, "check"):
        raise UsageError(f'expect_layout: export={export!r} is neither None nor "check".')


class _Decoration:
    """What was asked, and what is made of the things that it may be asked of."""

    def __init__(self, kinds: Mapping[str, Kind], grads: Kind | None, mode: Mode, export: Export) -> None:
        self.kinds = kinds
        self.grads = grads
        self.mode = mode
        self.export = export

    def of(self, target: Any) -> Any:
        """The decorated thing."""
        import torch
        from torch._ops import OpOverload, OpOverloadPacket

        if isinstance(target, (classmethod, staticmethod)):
            return type(target)(self.of(target.__func__))
        if isinstance(target, type):
            if issubclass(target, torch.autograd.Function):
                return self.of_autograd_function(target)
            if issubclass(target, torch.nn.Module):
                module: Any = target
                module.forward = self.of_function(module.forward)
                return module
            raise UsageError(f"expect_layout: {target.__name__} is neither an autograd.Function nor an nn.Module.")
        if isinstance(target, (OpOverload, OpOverloadPacket)) or hasattr(target, "_opoverload"):
            return self.of_operator(target)
        if not callable(target) or isinstance(target, torch.nn.Module):
            raise UsageError(
                f"expect_layout: a {type(target).__name__} can't be decorated; decorate a function or class."
            )
        return self.of_function(target)

    def contract(self, name: str, slots: tuple[Slot, ...]) -> Contract:
        """The contract of a callable with these arguments. Raises UsageError for one that isn't there."""
        known = {slot.name for slot in slots}
        missing = [
            each for kind in self.kinds.items() for each in (kind[0], kind[1].other) if each and each not in known
        ]
        if missing:
            raise UsageError(f"expect_layout: `{name}` has no argument {missing[0]!r}.")
        return Contract(name, slots, self.grads, self.mode, self.export)

    def of_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that looks like another, and holds the contract before it calls it."""
        shown = _shown(function)
        contract = self.contract(shown, slots_of(_signature(function, shown), self.kinds))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            if self.mode == "convert":
                raise UsageError(f"expect_layout: `{shown}` is a generator; what it writes to a copy would be lost.")
            if self.grads is not None:
                raise UsageError(
                    f"expect_layout: `{shown}` is a generator; the gradients of what it yields aren't held."
                )
            return wrappers.held(function, contract)
        if inspect.iscoroutinefunction(function):
            return wrappers.held_coroutine(function, contract)
        return wrappers.held(function, contract)

    def of_operator(self, op: Any) -> Callable[..., Any]:
        """A function in place of an operator of `torch.library`, with the methods that its definition has."""
        from torch._ops import OpOverload, OpOverloadPacket

        overload = op
        if isinstance(op, OpOverloadPacket):
            first, *others = op.overloads()
            if others:
                raise UsageError(f"expect_layout: {op} has several overloads; name one, as in {op}.{first}.")
            overload = getattr(op, first)
        elif not isinstance(op, OpOverload):
            overload = op._opoverload
        schema = overload._schema
        name = schema.name
        signature = _schema_signature(schema)
        written = {each.name: bool(each.alias_info and each.alias_info.is_write) for each in schema.arguments}
        slots = tuple(replace(slot, written=written[slot.name]) for slot in slots_of(signature, self.kinds))
        held = wrappers.held(op, self.contract(name, slots), always=_takes_any_layout(overload))
        held.__name__ = held.__qualname__ = name.rpartition("::")[2]
        held.__signature__ = signature  # type: ignore[attr-defined]
        held.__wrapped__ = op  # type: ignore[attr-defined]
        for attribute in dir(op) if op is not overload else ():
            if attribute.startswith("register_") or attribute in ("set_kernel_enabled", "overloads"):
                setattr(held, attribute, getattr(op, attribute))
        return held

    def of_autograd_function(self, target: Any) -> Any:
        """The class, with an `apply` that holds the arguments and a `backward` that holds what comes in.

        Arguments are held outside of `apply`, so that what `forward` saves are inputs of the function, as gradients of
        gradients need. Dynamo looks past an `apply` that is not torch's: it finds them held in `forward`.
        """
        name = _shown(target)
        has_context = target.setup_context is not _base_function().setup_context
        skipped = 0 if has_context else 1
        slots = slots_of(_signature(target.forward, name), self.kinds, skipped)
        contract = self.contract(f"{name}.forward", slots)
        if self.kinds:
            wrappers.hold_apply(target, contract)
            target.forward = staticmethod(wrappers.held_when_traced(target.forward, contract, skipped))
            if has_context:
                target.setup_context = staticmethod(wrappers.context_when_traced(target.setup_context, contract))
        if self.grads is not None:
            contract = replace(contract, function=f"{name}.backward")
            way = "vjp" if target.vjp is not _base_function().vjp else "backward"
            setattr(target, way, staticmethod(wrappers.held_backward(getattr(target, way), contract)))
        return target


def _shown(thing: Any) -> str:
    """Its name, without the functions that it is defined in."""
    return getattr(thing, "__qualname__", type(thing).__name__).rpartition("<locals>.")[2]


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise UsageError(
            f"expect_layout: `{name}` does not tell its arguments; wrap it in a function that does."
        ) from None


def _schema_signature(schema: Any) -> inspect.Signature:
    kinds = inspect.Parameter
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name,
                kinds.KEYWORD_ONLY if each.kwarg_only else kinds.POSITIONAL_OR_KEYWORD,
                default=each.default_value if each.has_default_value() else kinds.empty,
            )
            for each in schema.arguments
        ]
    )


def _takes_any_layout(overload: Any) -> bool:
    """Whether inductor may hand it other strides than it was traced with."""
    import torch

    return getattr(torch.Tag, "flexible_layout", None) in overload.tags


def _base_function() -> Any:
    from torch.autograd import Function

    return Function
