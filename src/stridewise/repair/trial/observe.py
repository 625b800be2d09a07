"""What a step leaves behind, and whether a changed program leaves the same."""

import math
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor
from torch.nn.parameter import is_lazy

from stridewise import layout
from stridewise.recorder.reach import Reached
from stridewise.recorder.state import has_values, version_of
from stridewise.recorder.tensors import layout_of, tensors_in
from stridewise.repair.refused import Refused
from stridewise.repair.trial.held import Held, Number
from stridewise.repair.trial.kept import held_by_containers
from stridewise.repair.trial.parts import bits, checksum, kind_of, parts_of
from stridewise.repair.trial.sharing import Place, Sharing, check, place_of
from stridewise.repair.trial.workload import Workload

_MOST_TOLD = 5
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
    numbers: dict[str, Number]
    written: frozenset[str] = frozenset()
    """The tensors of the program that the step writes to, with whatever values."""
    exact: dict[str, str | bytes] = {}
    """Text, bytes and members of enumerations."""
    kinds: dict[str, str] = {}
    """What stands where, if it is no plain tensor and no number."""
    unseen: dict[str, str] = {}
    """What can't be compared: its class."""
    sharing: Sharing = Sharing({})
    checksums: dict[str, int] = {}
    """Of the program's tensors that no step changes as far as torch knows."""


class Comparison(Struct, frozen=True):
    """How the results of two steps differ, where they may."""

    difference: float
    """The largest; 0 is bit for bit."""
    layouts: tuple[str, ...]
    """What has another layout, in words."""
    compared: int = 0
    """How many tensors, numbers and texts have values that were compared."""
    unseen: tuple[str, ...] = ()
    """What could not be compared, in words."""


def observe(workload: Workload, mode: AbstractContextManager[Any] | None = None) -> Observation:
    """Run a step, with a mode on if one is given, and keep what comes of it."""
    workload.prepare()
    reached = workload.state.reached
    with torch._C.DisableTorchFunction():
        versions = [
            (name, tensor, version_of(tensor)) for name, tensor in reached.tensors.values() if has_values(tensor)
        ]
        kept = {id(tensor): tensor for _, tensor in held_by_containers(reached)}
    with mode or nullcontext():
        output = workload.run()
    workload.wait()
    with torch.no_grad(), torch._C.DisableTorchFunction():
        written = frozenset(name for name, tensor, version in versions if version_of(tensor) != version)
        held = Held({id(thing): f"the program's {type(thing).__name__}" for thing in _parts_of_program(reached)})
        held.add("output", output)
        names = {id(tensor): name for name, tensor in reached.tensors.values()}
        for leaf in workload.state.leaves:
            if leaf.grad is not None:
                held.add(f"gradient of {names[id(leaf)]}", leaf.grad)
        results = set(held.tensors)
        for name, tensor in workload.state.changing:
            held.add(f"{name} after the step", tensor)
        for name, tensor in held_by_containers(reached):
            if id(tensor) in kept:
                continue
            held.add(f"{name} after the step", tensor)
            results.add(f"{name} after the step")
        return _observation(held, results, workload, written)


def _parts_of_program(reached: Reached) -> Iterator[Any]:
    yield from (module for _, module in reached.modules.values())
    yield from reached.optimizers


def _observation(held: Held, results: set[str], workload: Workload, written: frozenset[str]) -> Observation:
    seen: dict[str, Seen] = {}
    places: dict[str, Place | None] = {}
    kinds, unseen = dict(held.kinds), dict(held.unseen)
    for name, tensor in held.tensors.items():
        try:
            kinds[name] = kind_of(tensor)
            parts = {f"{name}: {part}" if part else name: found for part, found in parts_of(tensor).items()}
            seen.update({part: _seen(found) for part, found in parts.items()})
            if name in results:
                places.update({part: place_of(found) for part, found in parts.items()})
            readable = bool(parts)
        except Exception:  # functorch's, symbolic, or of a dtype that has no kernels: torch raises all sorts of things
            readable = False
        if not readable:
            unseen[name] = type(tensor).__name__
    for name, array in held.arrays.items():
        seen[name] = Seen(_copied(array), None)
        places[name] = place_of(array)
    sharing, checksums = _of_program(workload, {name: place for name, place in places.items() if place is not None})
    return Observation(seen, held.numbers, written, held.exact, kinds, unseen, sharing, checksums)


def _of_program(workload: Workload, results: dict[str, Place]) -> tuple[Sharing, dict[str, int]]:
    """Where the program's own tensors and results lie, and the checksums of those that no step changes."""
    inputs = {id(tensor) for _, tensor in tensors_in((workload.args, workload.kwargs))}
    changing = {id(tensor) for _, tensor in workload.state.changing}
    own: dict[str, Tensor] = {}
    places: dict[str, Place] = {}
    are_inputs, are_changing = set(), set()
    for name, tensor in workload.state.reached.tensors.values():
        for part, found in _own_parts(tensor).items():
            if (place := place_of(found)) is None:
                continue
            called = _free(f"{name}: {part}" if part else name, results.keys() | own.keys())
            own[called], places[called] = found, place
            if id(tensor) in inputs:
                are_inputs.add(called)
            if id(tensor) in changing:
                are_changing.add(called)
    sharing = Sharing({**results, **places}, frozenset(own.keys() - are_inputs), frozenset(are_inputs))
    groups = sharing.groups()
    written = {groups[name] for name in are_changing}
    return sharing, {name: checksum(part) for name, part in own.items() if groups[name] not in written}


def _own_parts(tensor: Tensor) -> dict[str, Tensor]:
    if is_lazy(tensor):
        return {}
    try:
        return parts_of(tensor)
    except Exception:  # as above
        return {}


def _free(name: str, taken: Set[str]) -> str:
    name = name if name not in taken else f"{name} of the program"
    return next(found for number in count(1) if (found := f"{name} ({number})" if number > 1 else name) not in taken)


def compare(before: Observation, after: Observation, tolerance: float | None = None) -> Comparison:
    """Raise Refused where results differ by more than is tolerated: by their dtype's tolerance, or the one given."""
    _check_kinds(before, after)
    if before.written != after.written:
        name = min(before.written ^ after.written)
        change = "is no longer written to" if name in before.written else "is written to"
        raise Refused(f"it changes what the program writes to through views: {name} {change}")
    for name in sorted(before.checksums.keys() & after.checksums.keys()):
        if before.checksums[name] != after.checksums[name]:
            raise Refused(f"it changes {name}, which the program itself does not")
    worst = max(_check_numbers(before, after, tolerance), _check_tensors(before, after, tolerance))
    check(before.sharing, after.sharing)
    with_values = sum(not seen.value.is_meta for seen in before.tensors.values())
    told = [f"{name} ({kind})" for name, kind in (before.unseen | after.unseen).items()]
    if len(told) > _MOST_TOLD:
        told[_MOST_TOLD:] = [f"{len(told) - _MOST_TOLD} more"]
    compared = with_values + len(before.numbers) + len(before.exact)
    return Comparison(worst, tuple(_other_layouts(before, after)), compared, tuple(told))


def _check_kinds(before: Observation, after: Observation) -> None:
    """Raise Refused where something else comes out, or what has to be exact is not."""
    missing = before.tensors.keys() ^ after.tensors.keys() | before.numbers.keys() ^ after.numbers.keys()
    missing |= before.exact.keys() ^ after.exact.keys() | before.unseen.keys() ^ after.unseen.keys()
    for name, kind in before.kinds.items():
        if after.kinds.get(name, kind) != kind:
            raise Refused(f"it changes what comes out: {name} was {kind} and becomes {after.kinds[name]}")
    missing |= before.kinds.keys() ^ after.kinds.keys()
    if missing:
        raise Refused(f"it changes what comes out: {min(missing)} is there only with or only without it")
    for name, exact in before.exact.items():
        if after.exact[name] != exact:
            raise Refused(_changed(name, math.inf, 0.0))


def _check_tensors(before: Observation, after: Observation, tolerance: float | None) -> float:
    worst = 0.0
    largest = max((_magnitude(seen.value) for name, seen in before.tensors.items() if _is_gradient(name)), default=0.0)
    for name, old in before.tensors.items():
        floor = SMALL_GRADIENT * largest if _is_gradient(name) else 0.0
        difference = _difference(name, old.value, after.tensors[name].value, floor)
        worst = max(worst, _allowed(name, difference, _tolerance(name, old.value.dtype, tolerance)))
    return worst


def _check_numbers(before: Observation, after: Observation, tolerance: float | None) -> float:
    worst = 0.0
    for name, old in before.numbers.items():
        new = after.numbers[name]
        if type(old) is not type(new):
            kinds = f"{type(old).__name__} and becomes {type(new).__name__}"
            raise Refused(f"it changes what comes out: {name} was {kinds}")
        difference = _between(old, new)
        worst = max(worst, _allowed(name, difference, _tolerance(name, torch.float32, tolerance)))
    return worst


def _between(old: Number, new: Number) -> float:
    """How two numbers differ: whole ones not at all or entirely."""
    if old == new:
        return 0.0
    if isinstance(old, int):
        return math.inf
    one, other = complex(old), complex(new)
    parts = [(one.real, other.real), (one.imag, other.imag)]
    if all(map(math.isfinite, (one.real, one.imag, other.real, other.imag))):
        return _share(math.dist(*zip(*parts, strict=True)), math.hypot(one.real, one.imag))
    same = all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in parts)
    return 0.0 if same else math.inf


def _allowed(name: str, difference: float, allowed: float) -> float:
    if not difference <= allowed:
        raise Refused(_changed(name, difference, allowed))
    return difference


def _other_layouts(before: Observation, after: Observation) -> Iterator[str]:
    for name, seen in before.tensors.items():
        old, new = seen.layout, after.tensors[name].layout
        if old != new and old is not None and new is not None and _is_told(name):
            yield _in_words(name, old, new)


def in_words(tolerance: float | None) -> str:
    """What counts as equal."""
    if tolerance is not None:
        return f"results within {tolerance:g} of the largest magnitude, gradients within {tolerance * GRADIENTS:g}"
    kinds = ", ".join(f"{kind:g} ({str(dtype).removeprefix('torch.')})" for dtype, kind in TOLERANCES.items())
    return f"results within a share of the largest magnitude: {kinds}; gradients within {GRADIENTS} times that"


def _seen(tensor: Tensor) -> Seen:
    shape = layout_of(tensor)
    return Seen(tensor.detach().clone(), shape if isinstance(shape, layout.Layout) else None)


def _copied(array: "np.ndarray[Any, Any]") -> Tensor:
    kind = {"g": np.float64, "G": np.complex128}.get(array.dtype.char, array.dtype.newbyteorder("="))
    return torch.from_numpy(np.array(array, dtype=kind, order="C", copy=True))


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def _magnitude(value: Tensor) -> float:
    """The largest of a tensor's finite magnitudes."""
    wide = _widened(value)
    if wide is None or wide.is_meta:
        return 0.0
    finite = wide[torch.isfinite(wide)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _widened(value: Tensor) -> Tensor | None:
    """A tensor of a dtype that torch can compute with; None if its values are whole, or it has no such dtype."""
    if not (value.is_floating_point() or value.is_complex()):
        return None
    if value.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        return value
    try:
        return value.to(torch.complex64 if value.is_complex() else torch.float32)
    except (RuntimeError, NotImplementedError):  # several values in a byte
        return None


def _difference(name: str, old: Tensor, new: Tensor, floor: float) -> float:
    if old.shape != new.shape or old.dtype != new.dtype or old.is_meta != new.is_meta:
        raise Refused(f"it changes what comes out: {name} was {kind_of(old)} and becomes {kind_of(new)}")
    if old.device != new.device:
        raise Refused(f"it changes what comes out: {name} was on {old.device} and is on {new.device}")
    if old.numel() == 0 or old.is_meta:
        return 0.0
    if torch.equal(bits(old), bits(new)):
        return 0.0
    wide, other = _widened(old), _widened(new)
    if wide is None or other is None:
        return math.inf
    odd = ~torch.isfinite(wide)
    if odd.any() or not torch.isfinite(other).all():
        if not torch.equal(odd, ~torch.isfinite(other)) or not _same_odd(wide[odd], other[odd]):
            return math.inf
        wide, other = wide[~odd], other[~odd]
    return _share_of_largest(wide, other, floor) if wide.numel() else 0.0


def _same_odd(old: Tensor, new: Tensor) -> bool:
    """Infinities of one sign, and NaN wherever there was NaN."""
    if old.is_complex():
        old, new = torch.view_as_real(old), torch.view_as_real(new)
    return torch.allclose(old, new, rtol=TOLERANCES[torch.float32], atol=0, equal_nan=True)


def _share_of_largest(old: Tensor, new: Tensor, floor: float) -> float:
    return _share(float((old - new).abs().max()), max(floor, float(old.abs().max())))


def _share(difference: float, magnitude: float) -> float:
    if math.isnan(difference) or not math.isfinite(magnitude):
        return math.inf
    return difference / magnitude if magnitude else (0.0 if difference == 0 else math.inf)


def _tolerance(name: str, dtype: torch.dtype, tolerance: float | None) -> float:
    base = tolerance if tolerance is not None else _of_dtype(dtype.to_real())
    return base * GRADIENTS if _is_gradient(name) or name.endswith("after the step") else base


def _of_dtype(dtype: torch.dtype) -> float:
    usual = TOLERANCES.get(dtype, TOLERANCES[torch.float32])
    try:
        return usual if dtype in TOLERANCES or not dtype.is_floating_point else max(usual, torch.finfo(dtype).eps)
    except NotImplementedError:  # several values in a byte: their bits are compared
        return usual


def _changed(name: str, difference: float, allowed: float) -> str:
    if math.isinf(difference):
        return f"it changes results: {name} is another"
    return f"it changes results: {name} differs by {difference:.2g} of its largest magnitude ({allowed:g} is tolerated)"


def _is_told(name: str) -> bool:
    return not name.endswith("after the step")


def _in_words(name: str, old: layout.Layout, new: layout.Layout) -> str:
    before, after = layout.name(old), layout.name(new)
    if before == after:
        return f"{name}: strides {old.strides} become {new.strides}"
    return f"{name}: {before} becomes {after}"
