"""A contract where Dynamo traces: for torch.compile, and for export with `strict=True`.

What a tensor's strides are is known there: Dynamo guards on those of the inputs. A fulfilled contract leaves nothing
in the graph. A broken one leaves an operator that complains or converts when the graph runs, between the tensor and
the function, so that nothing behind it runs before. The code is what Dynamo can trace: tuples, loops, no structs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from stridewise.checks.contracts import ops, private
from stridewise.checks.contracts.contract import ANYTHING, Contract, spelled
from stridewise.checks.contracts.report import GRADIENT
from stridewise.checks.contracts.tensors import is_changed, meets_when_traced, plain_types, version_of

Asked = tuple[str, Any, str, str, str, Any, bool]
"""Of a kind: its name, its predicate, as operators spell it, the mode, the function, what refuses it, always or not."""


def traced_call(function: Callable[..., Any], contract: Contract, *, always: bool) -> Callable[..., Any]:
    """A function of `args` and `kwargs` that Dynamo traces in place of the call; `front` goes before, unheld.

    With `always`, what is converted is so even if it is of the kind while it is traced: inductor may give it other
    strides, and the function would take them.
    """
    by_name = {slot.name: slot for slot in contract.slots}
    always = always and contract.mode == "convert"
    slots = tuple(
        (
            slot.position,
            slot.name,
            slot.default,
            slot.gathers,
            slot.first_names,
            None if slot.kind.other is None else (by_name[slot.kind.other].position, slot.kind.other),
            slot.written,
            _asked(contract, slot.kind, always=always and slot.written is False),
        )
        for slot in contract.slots
        if slot.kind is not ANYTHING
    )
    put_back = put_back_in_graph()
    grads = spelled_for_gradients(contract)

    def traced(args: Any, kwargs: Any, front: Any = ()) -> Any:
        held, named = list(args), dict(kwargs)
        kept: list[Any] = []
        for position, name, default, gathers, first_names, beside, written, asked in slots:
            other = None
            if beside is not None:
                other = held[beside[0]] if beside[0] < len(held) else named.get(beside[1])
            into: Any = kept if written is not False else None
            if gathers == "args":
                for at in range(position, len(held)):
                    held[at] = hold_traced(held[at], asked, f"{name}[{at - position}]", other, into)
            elif gathers == "kwargs":
                for key in list(named):
                    if key not in first_names:
                        named[key] = hold_traced(named[key], asked, f"{name}[{key!r}]", other, into)
            elif position < len(held):
                held[position] = hold_traced(held[position], asked, name, other, into)
            elif name in named:
                named[name] = hold_traced(named[name], asked, name, other, into)
            elif default is not None:
                named[name] = hold_traced(default, asked, name, other, into)
        result = function(*front, *held, **named)
        for original, copy in kept:
            put_back(original, copy)
            if result is copy:
                result = original
        if grads is not None:
            hold_gradients(result, grads, "output")
        return result

    return traced


def spelled_for_gradients(contract: Contract) -> Asked | None:
    """What is asked of gradients, as `gradient_hook` takes it."""
    return None if contract.grads is None else _asked(contract, contract.grads, always=True)


def _asked(contract: Contract, kind: Any, *, always: bool) -> Asked:
    refusal = contract.refusal(kind)
    return kind.name, kind.predicate, spelled(kind), contract.mode, contract.function, refusal, always


def hold_traced(value: Any, asked: Asked, path: str, other: Any, kept: list[Any] | None) -> Any:
    """An argument as the function gets it: as it is, or through an operator."""
    import torch

    if isinstance(value, torch.Tensor):
        return _hold_tensor(value, asked, path, other, kept)
    if type(value) is list or type(value) is tuple:
        entries = []
        for at in range(len(value)):
            entries.append(hold_traced(value[at], asked, f"{path}[{at}]", other, kept))  # noqa: PERF401
        return entries if type(value) is list else tuple(entries)
    if type(value) is dict:
        return {key: hold_traced(value[key], asked, f"{path}[{key!r}]", other, kept) for key in value}
    return value


def _hold_tensor(tensor: Any, asked: Asked, path: str, other: Any, kept: list[Any] | None) -> Any:
    name, predicate, spelling, mode, function, refusal, always = asked
    if private.is_exporting():
        if refusal is not None:
            private.stop_export(refusal[0], refusal[1], refusal[2])
        elif mode != "convert":
            ops.check_layout(tensor, other, spelling, mode, function, path)
            return tensor
        always = True
    elif not always:
        is_fine = meets_when_traced(name, tensor, other) if predicate is None else bool(predicate(tensor))
        if is_fine or (name == "same_as" and other is None):
            return tensor
        if mode == "warn":
            ops.check_layout(tensor, other, spelling, mode, function, path)
            return tensor
    made = ops.lay_out(tensor, other, spelling, mode, function, path)
    if kept is not None and mode == "convert":
        kept.append((tensor, made))
    return made


def hold_gradients(result: Any, asked: Asked, path: str) -> None:
    """Put a hook on each tensor of a result, which holds the gradient that comes into it."""
    import torch

    if isinstance(result, torch.Tensor):
        if result.requires_grad:
            result.register_hook(gradient_hook(asked, f"{GRADIENT}{path}"))
    elif isinstance(result, (list, tuple)):
        for at in range(len(result)):
            hold_gradients(result[at], asked, f"{path} {at}" if path == "output" else f"{path}[{at}]")
    elif isinstance(result, dict):
        for key in result:
            hold_gradients(result[key], asked, f"{path}[{key!r}]")


def gradient_hook(asked: Asked, name: str) -> Callable[[Any], Any]:
    """The hook: what strides a gradient will have is not known while it is traced, so it is an operator's to see."""
    _, _, spelling, mode, function, _, _ = asked

    def hook(grad: Any) -> Any:
        if mode == "convert":
            return ops.lay_out(grad, None, spelling, mode, function, name)
        ops.check_layout(grad, None, spelling, mode, function, name)
        return grad

    return hook


@cache
def put_back_in_graph() -> Callable[[Any, Any], Any]:
    """A function that Dynamo leaves in its graph: whether a copy was written to shows only when that is traced."""
    import torch

    plain = plain_types()

    def put_back(original: Any, copy: Any) -> Any:
        # Of values, those of the graph's own run: without autograd a fresh copy was never written to, with it once.
        if version_of(copy) > 0 and (type(copy) not in plain or is_changed(copy, -1, original)):
            original.copy_(copy)
        return copy

    in_graph: Callable[[Any, Any], Any] = torch.compiler.allow_in_graph(put_back)
    return in_graph
