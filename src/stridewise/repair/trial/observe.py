"""What a step leaves behind, and whether a changed program leaves the same."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from numbers import Number
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from stridewise import layout
from stridewise.recorder.state import has_values, version_of
from stridewise.recorder.tensors import layout_of, tensors_in
from stridewise.repair.refused import Refused
from stridewise.repair.trial.workload import Workload

TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest difference of two results that count as equal, as a share of the largest magnitude in the result. Other
kernels add in another order: about ten times what `torch.testing.assert_close` allows for one operator."""
GRADIENTS = 10
"""How many times as much gradients may differ: they add over batch and positions."""
SMALL_GRADIENT = 0.01
"""Of the largest gradient: a smaller one is held against that. Some are nothing but rounding errors, as that of the
bias of attention's keys, which is 0 in theory."""


class Seen(Struct, frozen=True):
    """One result: a tensor of the output, a gradient, or a tensor that the step changes."""

    value: Tensor
    layout: layout.Layout | None


class Observation(Struct, frozen=True):
    """All results of a step, by name."""

    tensors: dict[str, Seen]
    numbers: dict[str, complex]
    written: frozenset[str] = frozenset()
    """The tensors of the program that the step writes to, with whatever values."""


class Comparison(Struct, frozen=True):
    """How the results of two steps differ, where they may."""

    difference: float
    """The largest; 0 is bit for bit."""
    layouts: tuple[str, ...]
    """What has another layout, in words."""


def observe(workload: Workload, mode: AbstractContextManager[Any] | None = None) -> Observation:
    """Run a step, with a mode on if one is given, and keep what comes of it."""
    workload.prepare()
    reached = workload.state.reached.tensors.values()
    versions = [(name, tensor, version_of(tensor)) for name, tensor in reached if has_values(tensor)]
    with mode or nullcontext():
        output = workload.run()
    workload.wait()
    found = {f"output {path}".rstrip(): _seen(tensor) for path, tensor in tensors_in(output)}
    names = {id(tensor): name for name, tensor in workload.state.reached.tensors.values()}
    for leaf in workload.state.leaves:
        if leaf.grad is not None:
            found[f"gradient of {names[id(leaf)]}"] = _seen(leaf.grad)
    for name, tensor in workload.state.changing:
        found[f"{name} after the step"] = _seen(tensor)
    written = frozenset(name for name, tensor, version in versions if version_of(tensor) != version)
    return Observation(found, dict(_numbers(output, "output")), written)


def compare(before: Observation, after: Observation, tolerance: float | None = None) -> Comparison:
    """Raise Refused where results differ by more than is tolerated: by their dtype's tolerance, or the one given."""
    missing = before.tensors.keys() ^ after.tensors.keys() | before.numbers.keys() ^ after.numbers.keys()
    if missing:
        raise Refused(f"it changes what comes out: {min(missing)} is there only with or only without it")
    if before.written != after.written:
        name = min(before.written ^ after.written)
        change = "is no longer written to" if name in before.written else "is written to"
        raise Refused(f"it changes what the program writes to through views: {name} {change}")
    worst, layouts = 0.0, []
    largest = max((_magnitude(seen.value) for name, seen in before.tensors.items() if _is_gradient(name)), default=0.0)
    for name, old in before.tensors.items():
        new = after.tensors[name]
        floor = SMALL_GRADIENT * largest if _is_gradient(name) else 0.0
        difference = _difference(name, old.value, new.value, floor)
        allowed = _tolerance(name, old.value.dtype, tolerance)
        if not difference <= allowed:
            raise Refused(_changed(name, difference, allowed))
        worst = max(worst, difference)
        if old.layout != new.layout and old.layout is not None and new.layout is not None and _is_told(name):
            layouts.append(_in_words(name, old.layout, new.layout))
    for name, number in before.numbers.items():
        difference = _share(abs(number - after.numbers[name]), abs(number))
        allowed = _tolerance(name, torch.float32, tolerance)
        if not difference <= allowed:
            raise Refused(_changed(name, difference, allowed))
        worst = max(worst, difference)
    return Comparison(worst, tuple(layouts))


def in_words(tolerance: float | None) -> str:
    """What counts as equal."""
    if tolerance is not None:
        return f"results within {tolerance:g} of the largest magnitude, gradients within {tolerance * GRADIENTS:g}"
    kinds = ", ".join(f"{kind:g} ({str(dtype).removeprefix('torch.')})" for dtype, kind in TOLERANCES.items())
    return f"results within a share of the largest magnitude: {kinds}; gradients within {GRADIENTS} times that"


def _seen(tensor: Tensor) -> Seen:
    shape = layout_of(tensor)
    return Seen(tensor.detach().clone(), shape if isinstance(shape, layout.Layout) else None)


def _numbers(value: Any, path: str) -> Iterator[tuple[str, complex]]:
    if isinstance(value, Number) and not isinstance(value, Tensor):
        yield path, complex(value)  # type: ignore[call-overload]
    elif isinstance(value, (list, tuple)):
        for position, entry in enumerate(value):
            yield from _numbers(entry, f"{path} {position}")
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _numbers(entry, f"{path} {key}")


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def _magnitude(value: Tensor) -> float:
    """The largest of a tensor's finite magnitudes."""
    if value.layout is not torch.strided or value.is_nested or not (value.is_floating_point() or value.is_complex()):
        return 0.0
    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _difference(name: str, old: Tensor, new: Tensor, floor: float) -> float:
    if old.shape != new.shape or old.dtype != new.dtype or old.layout != new.layout:
        raise Refused(f"it changes what comes out: {name} was {_kind(old)} and becomes {_kind(new)}")
    if old.layout is not torch.strided or old.is_nested:
        old, new = old.to_dense(), new.to_dense()
    if not (old.is_floating_point() or old.is_complex()):
        return 0.0 if torch.equal(old, new) else math.inf
    if old.numel() == 0 or torch.equal(old, new):
        return 0.0
    if old.dtype in (torch.float16, torch.bfloat16):
        old, new = old.float(), new.float()
    found = _share_of_largest(old, new, floor)
    if math.isfinite(found):
        return found
    odd = ~torch.isfinite(old)
    if not torch.equal(odd, ~torch.isfinite(new)) or not torch.allclose(old[odd], new[odd], equal_nan=True):
        return math.inf
    old, new = old[~odd], new[~odd]
    return _share_of_largest(old, new, floor) if old.numel() else 0.0


def _share_of_largest(old: Tensor, new: Tensor, floor: float) -> float:
    return _share(float((old - new).abs().max()), max(floor, float(old.abs().max())))


def _share(difference: float, magnitude: float) -> float:
    if math.isnan(difference) or not math.isfinite(magnitude):
        return math.inf
    return difference / magnitude if magnitude else (0.0 if difference == 0 else math.inf)


def _tolerance(name: str, dtype: torch.dtype, tolerance: float | None) -> float:
    base = tolerance if tolerance is not None else TOLERANCES.get(dtype.to_real(), TOLERANCES[torch.float32])
    return base * GRADIENTS if _is_gradient(name) or name.endswith("after the step") else base


def _changed(name: str, difference: float, allowed: float) -> str:
    if math.isinf(difference):
        return f"it changes results: {name} is another"
    return f"it changes results: {name} differs by {difference:.2g} of its largest magnitude ({allowed:g} is tolerated)"


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _is_told(name: str) -> bool:
    return not name.endswith("after the step")


def _in_words(name: str, old: layout.Layout, new: layout.Layout) -> str:
    before, after = layout.name(old), layout.name(new)
    if before == after:
        return f"{name}: strides {old.strides} become {new.strides}"
    return f"{name}: {before} becomes {after}"
