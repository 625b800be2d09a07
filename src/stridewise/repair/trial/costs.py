"""What the calls of a step cost with operands as they are and in order: what a plan for the whole step needs."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch
from msgspec.structs import replace as changed
from torch import Tensor

from stridewise.layout import numel
from stridewise.recorder.functions import function_name
from stridewise.repair.plan.costs import CallCost, CopyCost, Costs
from stridewise.repair.plan.slow import Slow
from stridewise.repair.trial.capture import Call, Group, Signature
from stridewise.repair.trial.replay import (
    Arm,
    TimeIsUp,
    Timer,
    built,
    random_states_kept,
    random_tensors,
    replay,
    timed_rounds,
    timer_of,
)

COPYING = 0.25
"""Share of the time that measuring copies may take: kernels are what candidates need first."""
_EMPTY = Group("dict", (), ())


def measure(
    signatures: Sequence[Signature],
    *,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    timer: Timer | None = None,
    note: Callable[[str], None] | None = None,
) -> tuple[tuple[Slow, ...], Costs]:
    """The calls that their operands' strides make slower, as `replay` finds them; and all costs, until `deadline`."""
    kernels = [signature for signature in signatures if signature.role == "kernel"]
    now = clock()
    calls: list[CallCost] = []
    copies: list[CopyCost] = []
    devices = {spec.device for signature in signatures for spec in signature.call.tensors if spec.device.type != "cpu"}
    if now < deadline:
        until = now + COPYING * (deadline - now)
        with random_states_kept(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own calls have warned already
            calls += _of_views(signatures)
            copied = list(_of_copies(signatures, timer, clock, until))
        calls += [cost for cost in copied if isinstance(cost, CallCost)]
        copies += [cost for cost in copied if isinstance(cost, CopyCost)]

    def on_call(signature: Signature, recorded_ns: float, in_order_ns: float) -> None:
        calls.append(_cost(signature, recorded_ns, in_order_ns))

    slow = replay(kernels, deadline=deadline, clock=clock, timer=timer, note=note, on_call=on_call)
    return slow, Costs(tuple(calls), tuple(copies))


def _of_views(signatures: Sequence[Signature]) -> Iterator[CallCost]:
    for signature in signatures:
        if signature.role == "view":
            try:
                yield _cost(signature, 0, 0)
            except Exception:  # it depends on what is in its operands: what it gives stays unknown
                continue


def _of_copies(
    signatures: Sequence[Signature], timer: Timer | None, clock: Callable[[], float], deadline: float
) -> Iterator[CallCost | CopyCost]:
    """What copies cost: those that the program asks for, and one of each strided operand; the largest first."""
    asked = [signature for signature in signatures if signature.role == "copy"]
    for signature in sorted([*_conversions(signatures), *asked], key=_elements, reverse=True):
        call = changed(signature.call, grad=False)  # backward hands the gradient on as it is
        tensors = random_tensors(signature)
        is_ours = not signature.sites
        arms = [Arm(call, tensors)] if is_ours else [Arm(call, tensors), Arm(call, tensors, "contiguous")]
        try:
            rounds = timed_rounds(call, arms, timer or timer_of(call.device), clock, deadline)
        except TimeIsUp:
            return
        except Exception:  # random data does not suit it: what it costs stays unknown
            continue
        times = [median(column) for column in zip(*rounds, strict=True)]
        if is_ours:
            (spec,) = call.tensors
            yield CopyCost(spec.sizes, spec.strides, str(spec.dtype).removeprefix("torch."), times[0])
        else:
            yield _cost(signature, times[0], times[1])


def _elements(signature: Signature) -> int:
    return sum(numel(spec.layout) for spec in signature.call.tensors)


def _conversions(signatures: Sequence[Signature]) -> Iterator[Signature]:
    """A copy of each distinct strided operand. They have no sites."""
    specs = {
        changed(spec, place=0, same_as=0, path=(0,), requires_grad=False): None
        for signature in signatures
        for spec in signature.call.strided
    }
    for spec in specs:
        call = Call(torch.Tensor.contiguous, Group("tuple", (), (spec,)), _EMPTY, False, None)
        yield Signature(call, (), {}, "copy")


def _cost(signature: Signature, recorded_ns: float, in_order_ns: float) -> CallCost:
    call = signature.call
    return CallCost(
        function=function_name(call.function),
        sites=tuple(site for site, _ in signature.sites),
        inputs=tuple((spec.sizes, spec.strides) for spec in call.tensors),
        recorded_ns=recorded_ns,
        in_order_ns=in_order_ns,
        gives_order=_gives_order(signature),
    )


def _gives_order(signature: Signature) -> tuple[bool, ...]:
    """Whether each tensor that a call gives is in order if its operands are: it is run on such, to see."""
    tensors = _uninitialised(signature) if signature.role == "view" else random_tensors(signature)
    in_order = {place: tensor.detach().contiguous() for place, tensor in tensors.items()}
    with torch.no_grad():
        result: Any = signature.call.function(
            *built(signature.call.args, in_order), **built(signature.call.kwargs, in_order)
        )
    results = result if isinstance(result, (list, tuple)) else (result,)
    return tuple(entry.is_contiguous() for entry in results if isinstance(entry, Tensor))


def _uninitialised(signature: Signature) -> dict[int, Tensor]:
    """Memory alone, which is all that a view needs."""
    return {
        spec.place: torch.empty(spec.sizes, dtype=spec.dtype, device=spec.device) for spec in signature.call.tensors
    }


__all__ = ["measure"]
