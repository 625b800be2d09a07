"""A contract on the arguments of one callable: what it asks of which argument, and how that is held in a call."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from stridewise.checks.contracts import ops, private
from stridewise.checks.contracts.kinds import Kind
from stridewise.checks.contracts.report import GRADIENT, Called, complain, error_for, what_breaks
from stridewise.checks.contracts.tensors import (
    are_alike,
    converted,
    fast_test,
    is_changed,
    plain_types,
    version_of,
)
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["raise", "convert", "warn"]
Export = Literal["check"] | None
Gathers = Literal["", "args", "kwargs"]
NOWHERE = 1 << 30
"""The position of an argument that is never given by position."""


class Slot(Struct, frozen=True):
    """An argument that a contract asks something of."""

    name: str
    position: int
    kind: Kind
    default: Any = None
    gathers: Gathers = ""
    """It is `*args` or `**kwargs`: the kind is each one's."""
    first_names: frozenset[str] = frozenset()
    """For `**kwargs`: the names of the other arguments."""
    written: bool | None = None
    """Whether the function writes to it; None if only a look at its values can tell."""


class Kept(Struct, frozen=True):
    """A tensor that was converted for a call, to be written back if the function wrote to it."""

    original: Any
    copy: Any
    version: int
    written: bool | None
    has_values: bool = True
    """Whether its values can be looked at: not while a graph is made of the program."""
    node: Any = None
    """What autograd knew of the copy when it was made: something else once it was written while gradients are on."""


class Contract(Struct, frozen=True):
    """What is asked of the arguments and gradients of one callable."""

    function: str
    """As messages name it."""
    slots: tuple[Slot, ...]
    grads: Kind | None
    mode: Mode
    export: Export

    # -- in eager mode -------------------------------------------------------------------------------------------------

    def hold(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[Kept]]:
        """The arguments as the function gets them, and what was converted. Raises ContractError, UsageError."""
        kept: list[Kept] = []
        held, named = list(args), dict(kwargs)
        for slot in self.slots:
            if slot.kind is ANYTHING:
                continue
            other = self._other(slot, held, named)
            if slot.gathers == "args":
                for at in range(slot.position, len(held)):
                    path = f"{slot.name}[{at - slot.position}]"
                    held[at] = self._hold_value(held[at], slot, path, other, kept)
            elif slot.gathers == "kwargs":
                for name in [name for name in named if name not in slot.first_names]:
                    named[name] = self._hold_value(named[name], slot, f"{slot.name}[{name!r}]", other, kept)
            elif slot.position < len(held):
                held[slot.position] = self._hold_value(held[slot.position], slot, slot.name, other, kept)
            elif slot.name in named or slot.default is not None:
                given = named.get(slot.name, slot.default)
                value = self._hold_value(given, slot, slot.name, other, kept)
                if value is not given:
                    named[slot.name] = value
        return held, named, kept

    def _other(self, slot: Slot, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The argument that a slot's kind names."""
        if slot.kind.other is None:
            return None
        beside = next(each for each in self.slots if each.name == slot.kind.other)
        return args[beside.position] if beside.position < len(args) else kwargs.get(beside.name, beside.default)

    def _hold_value(self, value: Any, slot: Slot, path: str, other: Any, kept: list[Kept]) -> Any:
        import torch

        if slot.kind.other is not None and not isinstance(other, (torch.Tensor, torch.fx.Proxy)):
            return value
        if isinstance(value, torch.Tensor):
            return self._hold_tensor(value, slot, path, other, kept)
        if isinstance(value, torch.fx.Proxy):
            made = self._hold_traced(value, slot.kind, path, other)
            if made is not value:
                kept.append(Kept(value, made, -1, slot.written))
            return made
        if type(value) in (list, tuple):
            entries = [self._hold_value(entry, slot, f"{path}[{at}]", other, kept) for at, entry in enumerate(value)]
            return type(value)(entries) if _differ(entries, value) else value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = zip(value._fields, value, strict=True)
            entries = [self._hold_value(entry, slot, f"{path}.{name}", other, kept) for name, entry in fields]
            return type(value)(*entries) if _differ(entries, value) else value
        if type(value) is dict:
            found = {key: self._hold_value(each, slot, f"{path}[{key!r}]", other, kept) for key, each in value.items()}
            return found if _differ(found.values(), value.values()) else value
        return value

    def _hold_tensor(self, tensor: Tensor, slot: Slot, path: str, other: Any, kept: list[Kept]) -> Any:
        known = next((each for each in kept if each.original is tensor), None)
        if (
            known is not None
            and slot.kind.other is None
            and what_breaks(known.copy, slot.kind, None, Called(self.function, path)) is None
        ):
            return known.copy  # given twice, it stays one tensor
        if private.is_scripted() or private.is_exporting() or private.is_drawn():
            made, has_values = self._hold_traced(tensor, slot.kind, path, other), False
        else:
            made, has_values = self.held(tensor, slot.kind, path, other), True
        if made is not tensor and slot.written is not False:
            kept.append(Kept(tensor, made, version_of(made), slot.written, has_values, made.grad_fn))
        return made

    def held(self, tensor: Tensor, kind: Kind, path: str, other: Any = None) -> Tensor:
        """A tensor that is of the kind: itself, or under `convert` a copy. Raises ContractError."""
        called = Called(self.function, path)
        broken = what_breaks(tensor, kind, other, called)
        if broken is None:
            return tensor
        if self.mode != "convert":
            complain(broken, self.mode)
            return tensor
        if not broken.can_convert:
            raise error_for(broken)
        made = converted(tensor, kind.name, other)
        again = what_breaks(made, kind, other, called)
        if again is not None:
            raise error_for(again)
        return made

    def give_back(self, kept: Sequence[Kept], result: Any) -> Any:
        """Write to the originals what the function wrote to copies of them, and return them where it returns copies."""
        import torch

        for each in kept:
            if isinstance(each.original, torch.fx.Proxy):
                arguments = (each.original, each.copy)
                each.original.tracer.create_proxy("call_function", ops.write_back, arguments, {})
            elif each.written or is_changed(each.copy, each.version, each.original if each.has_values else None):
                # Written where gradients were off, as only a leaf that requires them can be.
                is_leaf = each.original.is_leaf and each.copy.grad_fn is each.node
                with torch.no_grad() if is_leaf else contextlib.nullcontext():
                    each.original.copy_(each.copy)
            else:
                continue
            result = _swapped(result, each.copy, each.original)
        return result

    # -- where a graph is made of it that outlives the layouts of now --------------------------------------------------

    def _hold_traced(self, tensor: Any, kind: Kind, path: str, other: Any) -> Any:
        """An opaque operator in the graph, or a refusal."""
        refusal = self.refusal(kind, private.is_scripted() or not private.is_exporting())
        if refusal is not None:
            given, expected, advice = refusal
            raise UsageError(given, expected=expected, advice=advice)
        if self.mode == "convert":
            return ops.lay_out(tensor, None, kind.name, "convert", self.function, path)
        ops.check_layout(tensor, other, spelled(kind), self.mode, self.function, path)
        return tensor

    def refusal(self, kind: Kind, only_convert: bool = False) -> tuple[str, str, str] | None:
        """Why a contract can't be kept in a program that is exported or traced: three lines; None if it can."""
        ways = 'mode="convert"' if only_convert else 'mode="convert" or export="check"'
        if kind.predicate is not None or (kind.other is not None and self.mode == "convert"):
            what = f"`{kind.name}`" if kind.predicate is not None else "same_as"
            return (
                f"`{self.function}` can't be exported or traced with its contract: {what} has no operator for it.",
                "Python's checks vanish from the traced program, which would take any layout and go wrong silently.",
                f"Ask for a kind by its name ({ways}), or trace the function without the contract.",
            )
        if self.mode == "convert" or (self.export == "check" and not only_convert):
            return None
        return (
            f'`{self.function}` can\'t be exported or traced with mode="{self.mode}".',
            "Python's checks vanish from the traced program, which would take any layout and go wrong silently.",
            f"Write {ways} in the contract: an operator that stays in the program.",
        )

    # -- gradients -----------------------------------------------------------------------------------------------------

    def hold_gradients(self, result: Any, path: str = "output") -> None:
        """Put a hook on each tensor of a result, which holds the gradient that comes into it."""
        import torch

        if self.grads is None:
            return
        if isinstance(result, torch.Tensor):
            if result.requires_grad and not result.is_leaf:
                result.register_hook(self.gradient_hook(f"{GRADIENT}{path}"))
        elif isinstance(result, (list, tuple)):
            for at, entry in enumerate(result):
                self.hold_gradients(entry, f"{path} {at}" if path == "output" else f"{path}[{at}]")
        elif isinstance(result, dict):
            for key, entry in result.items():
                self.hold_gradients(entry, f"{path}[{key!r}]")

    def gradient_hook(self, name: str) -> Callable[[Tensor], Tensor]:
        """The hook that does it."""

        def hook(grad: Tensor) -> Tensor:
            return grad if self.grads is None else self.held(grad, self.grads, name)

        return hook


def spelled(kind: Kind) -> str:
    """A kind as the operators take it."""
    if kind.predicate is not None:
        return f"{kind.name}{ops.ASKED}"
    return kind.name if kind.other is None else f"{kind.name}={kind.other}"


def _differ(first: Any, second: Any) -> bool:
    return any(own is not given for own, given in zip(first, second, strict=True))


def _swapped(result: Any, copy: Any, original: Any) -> Any:
    if result is copy:
        return original
    if type(result) in (list, tuple):
        return type(result)(original if entry is copy else entry for entry in result)
    return result


_GATHERS: dict[Any, Gathers] = {
    inspect.Parameter.VAR_POSITIONAL: "args",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}


def slots_of(signature: inspect.Signature, kinds: Mapping[str, Kind], skipped: int = 0) -> tuple[Slot, ...]:
    """The arguments that kinds are given for. `skipped` arguments at the front are not the caller's."""
    slots = []
    names = frozenset(signature.parameters)
    for position, parameter in enumerate(list(signature.parameters.values())[skipped:]):
        kind = kinds.get(parameter.name)
        if kind is None and parameter.name not in {each.other for each in kinds.values()}:
            continue
        by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        gathers: Gathers = _GATHERS.get(parameter.kind, "")
        default = None if parameter.default is parameter.empty else parameter.default
        at = position if by_position or gathers == "args" else NOWHERE
        asked = kind if kind is not None else ANYTHING
        slots.append(Slot(parameter.name, at, asked, default, gathers, names))
    return tuple(slots)


def _anything(tensor: Any) -> bool:
    return True


ANYTHING = Kind("anything", predicate=_anything)
"""Of an argument that only another one is compared with."""


def fulfilment(contract: Contract) -> Callable[[Sequence[Any], Mapping[str, Any]], bool]:
    """A function that says quickly that all arguments are as they should be; False means: look closer."""
    plain, by_name = plain_types(), {slot.name: slot for slot in contract.slots}
    singles, pairs = [], []
    for slot in contract.slots:
        test = fast_test(slot.kind)
        if slot.gathers:
            return _look_closer
        if slot.kind is ANYTHING:
            continue
        if test is not None:
            singles.append((slot.position, slot.name, slot.default, test))
        else:
            other = by_name[slot.kind.other or ""]
            pairs.append((slot.position, slot.name, slot.default, other.position, other.name, other.default))

    def is_fulfilled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        count = len(args)
        try:
            for at, name, default, test in singles:
                value = args[at] if at < count else kwargs.get(name, default)
                if value.__class__ in plain:
                    if not test(value):
                        return False
                elif value is not None:
                    return False
            for at, name, default, other_at, other_name, other_default in pairs:
                value = args[at] if at < count else kwargs.get(name, default)
                other = args[other_at] if other_at < count else kwargs.get(other_name, other_default)
                if value is None or other is None:
                    continue
                if value.__class__ not in plain or other.__class__ not in plain or not are_alike(value, other):
                    return False
        except (IndexError, RuntimeError, NotImplementedError):  # no strides, or inside a transform
            return False
        return True

    return is_fulfilled


def _look_closer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return False
