"""The functions that stand in for what is decorated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stridewise.checks.contracts import private
from stridewise.checks.contracts.contract import Contract, fulfilment
from stridewise.checks.contracts.report import GRADIENT
from stridewise.checks.contracts.traced import gradient_hook, spelled_for_gradients, traced_call

Function = Callable[..., Any]


def held(function: Function, contract: Contract, *, always: bool = False) -> Function:
    """A function that holds a contract before it calls another."""
    is_traced, is_watched = private.dynamo_probe(), private.tracing_probe()
    is_fulfilled, traced = fulfilment(contract), traced_call(function, contract, always=always)
    has_grads = contract.grads is not None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return traced(args, kwargs)
        if is_watched() or not is_fulfilled(args, kwargs):
            return call_closely(function, contract, args, kwargs)
        result = function(*args, **kwargs)
        if has_grads:
            contract.hold_gradients(result)
        return result

    private.leave_in_python(call)
    return call


def call_closely(function: Function, contract: Contract, args: Any, kwargs: Any) -> Any:
    """The call where a quick look is not enough."""
    given, named, kept = contract.hold(args, kwargs)
    try:
        result = function(*given, **named)
    except Exception:
        contract.give_back(kept, None)  # what it wrote until then
        raise
    if kept:
        result = contract.give_back(kept, result)
    contract.hold_gradients(result)
    return result


def held_coroutine(function: Function, contract: Contract) -> Function:
    """The same for an `async def`: its arguments are held when it is first awaited."""

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        given, named, kept = contract.hold(args, kwargs)
        result = contract.give_back(kept, await function(*given, **named))
        contract.hold_gradients(result)
        return result

    return call


# -- of an autograd.Function ---------------------------------------------------------------------------------------


def hold_apply(target: Any, contract: Contract) -> None:
    """Give the class an `apply` that holds the arguments before autograd sees them."""
    is_watched, is_fulfilled = private.tracing_probe(), fulfilment(contract)

    @functools.wraps(target.apply)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        below = super(target, cls).apply
        if not is_watched() and is_fulfilled(args, kwargs):
            return below(*args, **kwargs)
        given, named, kept = contract.hold(args, kwargs)
        return contract.give_back(kept, below(*given, **named))

    target.apply = classmethod(apply)


def held_when_traced(forward: Function, contract: Contract, skipped: int) -> Function:
    """A `forward` that holds its arguments, behind the first `skipped`, where Dynamo has gone around `apply`."""
    is_traced, traced = private.dynamo_probe(), traced_call(forward, contract, always=False)

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return traced(args[skipped:], kwargs, args[:skipped])
        return forward(*args, **kwargs)

    return call


def context_when_traced(setup_context: Function, contract: Contract) -> Function:
    """A `setup_context` that sees the inputs as `forward` did."""
    is_traced, traced = private.dynamo_probe(), traced_call(_together, contract, always=False)

    @functools.wraps(setup_context)
    def call(ctx: Any, inputs: Any, output: Any) -> Any:
        return setup_context(ctx, traced(inputs, {}) if is_traced() else inputs, output)

    return call


def _together(*args: Any) -> tuple[Any, ...]:
    return args


def _eager_hook(contract: Contract) -> Function:
    def hook_of(name: str) -> Function:  # a function, since Dynamo takes no bound method here
        return contract.gradient_hook(name)

    return hook_of


def held_backward(backward: Function, contract: Contract) -> Function:
    """A `backward` that holds each gradient that comes in."""
    is_traced, hooks, eager_hook = private.dynamo_probe(), spelled_for_gradients(contract), _eager_hook(contract)

    @functools.wraps(backward)
    def call(ctx: Any, *grads: Any) -> Any:
        held_grads = []
        for at in range(len(grads)):
            name = f"{GRADIENT}output {at}" if len(grads) > 1 else f"{GRADIENT}output"
            grad = grads[at]
            if grad is not None:
                hook = gradient_hook(hooks, name) if is_traced() and hooks is not None else eager_hook(name)
                grad = hook(grad)
            held_grads.append(grad)
        return backward(ctx, *held_grads)

    return call
