"""Runs captured calls again on random data: with the operands' own strides, and with operands in other formats."""

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from statistics import median
from typing import Any, Protocol

import torch
from msgspec import Struct
from torch import Tensor

from stridewise import layout
from stridewise.measure.statistics import CONFIDENCE, interval
from stridewise.recorder.functions import function_name
from stridewise.repair.plan.slow import Format, Operand, Slow
from stridewise.repair.trial.capture import Argument, Call, Constant, Signature, TensorSpec

SLOWER = 0.8
"""Operands in another format make a call clearly faster if it takes less than this share of its time."""
PAYS = 0.95
"""A copy before a call pays if both take less than this share of the call's time."""

_BUDGET_S = 0.2
"""For each call."""
_SAMPLE_NS = 50_000
"""A call that is shorter is timed several times in a row."""
_MOST_REPEATS = 50
_FEWEST_ROUNDS, _MOST_ROUNDS = 8, 25
_ENOUGH_FOR_NOTHING = 3
"""Rounds after which a call that no format makes faster is left."""


class Arm:
    """One way to make a call: calling this makes it, with its backward where it has one."""

    def __init__(
        self, call: Call, tensors: Mapping[int, Tensor], format: Format | None = None, *, copies: bool = False
    ) -> None:
        self.call = call
        self.format = format
        """What the strided operands are converted to; None as they are."""
        self.copies = copies
        """The conversion is a part of it."""
        self._tensors = dict(tensors)
        if format is not None and not copies:
            for place, tensor in _converted(call, tensors, format).items():
                self._tensors[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        self._wanted = [tensor for tensor in self._tensors.values() if tensor.requires_grad] if call.grad else []
        self._gradients: list[Tensor] | None = None

    def __call__(self) -> None:
        """Make the call."""
        tensors: Mapping[int, Tensor] = self._tensors
        if self.copies:
            assert self.format is not None
            tensors = {**tensors, **_converted(self.call, tensors, self.format)}
        result = self.call.function(*built(self.call.args, tensors), **built(self.call.kwargs, tensors))
        if self._wanted:
            self._backward(result)

    @property
    def has_backward(self) -> bool:
        """Whether its result was found to depend on an operand that requires grad."""
        return bool(self._gradients)

    def _backward(self, result: Any) -> None:
        results = [result] if isinstance(result, Tensor) else [entry for entry in result if isinstance(entry, Tensor)]
        outputs = [output for output in results if output.requires_grad]
        if self._gradients is None:  # in the first run, which is not timed
            self._gradients = [torch.rand_like(output) for output in outputs]
        if outputs:
            torch.autograd.grad(outputs, self._wanted, self._gradients, allow_unused=True)


Timer = Callable[[Arm, int], float]
"""Runs an arm that many times, and gives the nanoseconds that all of them took."""


class Event(Protocol):
    """A mark in a device's stream, such as `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None:
        """Put the mark behind what was launched until now."""

    def synchronize(self) -> None:
        """Wait for it."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this mark to another."""


def cpu_timer(arm: Arm, times: int) -> float:
    """The timer for the CPU."""
    begin = time.perf_counter_ns()
    for _ in range(times):
        arm()
    return time.perf_counter_ns() - begin


def event_timer(event: Callable[[], Event]) -> Timer:
    """A timer for a device: between two marks in its stream, so that no launch is waited for."""

    def timed(arm: Arm, times: int) -> float:
        begin, end = event(), event()
        begin.record()
        for _ in range(times):
            arm()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e6

    return timed


def replay(
    signatures: Sequence[Signature],
    *,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    timer: Timer | None = None,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    on_call: Callable[[Signature, float, float], None] | None = None,
) -> tuple[Slow, ...]:
    """Find the calls that their operands' strides make slower, costliest first.

    Those that a step probably spends most on are measured first, until `deadline`, in seconds as `clock` has them.
    Each is made with its own strides, with operands in another format, and with the conversion before it, in turn.
    Where the step's call has a backward, that is timed too, for a gradient as the result lies in memory. `progress` is
    told how many are done, of how many; `note` what was not measured, and why; `on_call` of each call the nanoseconds
    that it takes as it is, and on contiguous operands.
    """
    found: list[Slow] = []
    ordered = sorted(signatures, key=lambda signature: -signature.weight)
    failures: dict[str, str] = {}
    finished = 0
    devices = {spec.device for signature in signatures for spec in signature.call.tensors if spec.device.type != "cpu"}
    with random_states_kept(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program's own calls have warned already
        for signature in ordered:
            try:
                found += _slow(signature, timer or timer_of(signature.call.device), clock, deadline, on_call)
            except TimeIsUp:
                break
            except Exception as error:  # random data does not suit every function
                failures.setdefault(function_name(signature.call.function), f"{type(error).__name__}: {error}")
            finished += 1
            if progress is not None:
                progress(finished, len(ordered))
    if note is not None:
        if finished < len(ordered):
            late = len(ordered) - finished
            note(f"{late} of {len(ordered)} calls with strided operands were not measured: time ran out.")
        for function, reason in failures.items():
            note(f"`{function}` could not be run on random data: {reason.splitlines()[0]}")
    return tuple(sorted(found, key=lambda slow: -slow.loss_ns))


def timer_of(device: torch.device) -> Timer:
    """The timer for a device."""
    if device.type == "cpu":
        return cpu_timer
    module = torch.get_device_module(device)

    def event() -> Event:
        with module.device(device):
            made: Event = module.Event(enable_timing=True)
            return made

    return event_timer(event)


@contextlib.contextmanager
def random_states_kept(devices: set[torch.device]) -> Iterator[None]:
    """What a replay draws is not missing from the program's own sequence of random numbers."""
    kinds = {device.type for device in devices}
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([]))
        for kind in kinds:
            stack.enter_context(
                torch.random.fork_rng([device for device in devices if device.type == kind], device_type=kind)
            )
        yield


# -- one signature -------------------------------------------------------------------------------------------------


class _Timed(Struct, frozen=True):
    """A format's two arms beside the call as it is: median ratios, and the upper ends of their intervals."""

    format: Format
    op: float
    op_high: float
    with_copy: float
    with_copy_high: float

    @property
    def pays(self) -> bool:
        return self.with_copy_high < PAYS


class TimeIsUp(Exception):
    """The deadline has come."""


def _slow(
    signature: Signature,
    timer: Timer,
    clock: Callable[[], float],
    deadline: float,
    on_call: Callable[[Signature, float, float], None] | None,
) -> list[Slow]:
    """One entry a place if the call's strides make it slower, else none."""
    if clock() >= deadline:
        raise TimeIsUp
    call = signature.call
    tensors = random_tensors(signature)
    own = Arm(call, tensors)
    arms = [(Arm(call, tensors, format), Arm(call, tensors, format, copies=True)) for format in _formats(call)]
    rounds = timed_rounds(call, [own, *(arm for pair in arms for arm in pair)], timer, clock, deadline)
    recorded_ns = median(times[0] for times in rounds)
    if on_call is not None:
        on_call(signature, recorded_ns, recorded_ns * median(times[1] / times[0] for times in rounds))
    if len(rounds) < _FEWEST_ROUNDS:
        return []
    timed = []
    for place, (op, _) in enumerate(arms):
        assert op.format is not None
        alone, with_copy = ([times[arm] / times[0] for times in rounds] for arm in (2 * place + 1, 2 * place + 2))
        timed.append(_Timed(op.format, median(alone), _high(alone), median(with_copy), _high(with_copy)))
    slower = [entry for entry in timed if entry.op_high < SLOWER]
    if not slower:
        return []
    best = min(slower, key=lambda entry: (not entry.pays, entry.with_copy if entry.pays else entry.op))
    return [
        Slow(
            function=function_name(call.function),
            site=site,
            count=count,
            operands=tuple(
                Operand(spec.place, spec.path, spec.sizes, spec.strides) for spec in call.tensors if spec.is_strided
            ),
            tensors=len(call.tensors),
            format=best.format,
            recorded_ns=recorded_ns,
            op_ns=recorded_ns * best.op,
            with_copy_ns=recorded_ns * best.with_copy,
            backward=own.has_backward,
            pays_for_copy=best.pays,
        )
        for site, count in signature.sites
    ]


def timed_rounds(
    call: Call, arms: Sequence[Arm], timer: Timer, clock: Callable[[], float], deadline: float
) -> list[list[float]]:
    """Times of one call by each arm, round by round; only a few rounds if no format makes the call any faster.

    The first arm is the call as it is; then come those of each format. Raises TimeIsUp if time is up too soon.
    """
    with _as_captured(call):
        return _rounds(arms, timer, clock, deadline)


def _rounds(arms: Sequence[Arm], timer: Timer, clock: Callable[[], float], deadline: float) -> list[list[float]]:
    first = [timer(arm, 1) for arm in arms]  # caches, lazy initialisation and gradients: not counted
    repeats = max(1, min(_MOST_REPEATS, math.ceil(_SAMPLE_NS / max(1, min(first)))))
    until = min(deadline, clock() + _BUDGET_S)
    coins = Random(0)
    rounds: list[list[float]] = []
    while len(rounds) < _FEWEST_ROUNDS or (len(rounds) < _MOST_ROUNDS and clock() < until):
        if len(rounds) < _FEWEST_ROUNDS and clock() >= deadline:
            raise TimeIsUp
        times = [0.0] * len(arms)
        order = range(len(arms))
        for place in reversed(order) if coins.getrandbits(1) else order:
            times[place] = max(timer(arms[place], repeats), 1) / repeats
        rounds.append(times)
        if len(rounds) == _ENOUGH_FOR_NOTHING and all(_is_hopeless(rounds, arm) for arm in range(1, len(arms), 2)):
            break
    return rounds


def _is_hopeless(rounds: list[list[float]], arm: int) -> bool:
    return median(times[arm] / times[0] for times in rounds) > PAYS


def _high(ratios: Sequence[float]) -> float:
    """The upper end of the interval of a ratio."""
    found = interval([math.log(ratio) for ratio in ratios], 1 - CONFIDENCE)
    assert found is not None, "there are enough rounds"
    return found.high


@contextlib.contextmanager
def _as_captured(call: Call) -> Iterator[None]:
    """Autograd and autocast as they were when the step made the call."""
    with torch.set_grad_enabled(call.grad), contextlib.ExitStack() as stack:
        if call.autocast is not None:
            stack.enter_context(torch.autocast(call.device.type, call.autocast, cache_enabled=False))
        yield


# -- data ----------------------------------------------------------------------------------------------------------


def _formats(call: Call) -> list[Format]:
    """The formats that some strided operand is not in."""
    images = [spec for spec in call.strided if len(spec.sizes) in (4, 5)]
    if any(not layout.is_contiguous(spec.layout, _channels_last(spec)) for spec in images):
        return ["contiguous", "channels_last"]
    return ["contiguous"]


def _channels_last(spec: TensorSpec) -> layout.MemoryFormat:
    return "channels_last" if len(spec.sizes) == 4 else "channels_last_3d"


def _converted(call: Call, tensors: Mapping[int, Tensor], format: Format) -> dict[int, Tensor]:
    """The strided operands in a format, as far as it exists for them."""
    converted = {}
    for spec in call.strided:
        if format == "contiguous":
            converted[spec.place] = tensors[spec.place].contiguous()
        elif len(spec.sizes) in (4, 5):
            memory_format = getattr(torch, _channels_last(spec))
            converted[spec.place] = tensors[spec.place].contiguous(memory_format=memory_format)
    return converted


def random_tensors(signature: Signature) -> dict[int, Tensor]:
    """Data of its own for a call, by place."""
    generators: dict[torch.device, torch.Generator] = {}
    tensors = {}
    for spec in signature.call.tensors:
        if spec.same_as == spec.place:
            if spec.device not in generators:
                generators[spec.device] = torch.Generator(spec.device).manual_seed(0)
            values = signature.values.get(spec.place)
            tensors[spec.place] = _random(spec, generators[spec.device]) if values is None else _filled(spec, values)
    return tensors


def _random(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    """Numbers from 0 to 1, which probabilities, variances and logarithms take, too."""
    dtype = torch.complex64 if spec.dtype.is_complex else torch.float32
    needed = layout.storage_needed(spec.layout)
    storage = torch.rand(needed, generator=generator, device=spec.device, dtype=dtype).to(spec.dtype)
    return storage.as_strided(spec.sizes, spec.strides).requires_grad_(spec.requires_grad)


def _filled(spec: TensorSpec, values: bytes) -> Tensor:
    """A tensor with these values; by index, since a tensor that overlaps itself can't be written to."""
    storage = torch.zeros(layout.storage_needed(spec.layout), dtype=spec.dtype)
    if values:
        at = torch.zeros(spec.sizes, dtype=torch.int64)
        for dim, (size, stride) in enumerate(zip(spec.sizes, spec.strides, strict=True)):
            shape = [-1 if other == dim else 1 for other in range(len(spec.sizes))]
            at += (torch.arange(size) * stride).reshape(shape)
        storage[at.flatten()] = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(spec.dtype)
    return storage.to(spec.device).as_strided(spec.sizes, spec.strides)


def built(argument: Argument, tensors: Mapping[int, Tensor]) -> Any:
    """An argument again, with these tensors in their places."""
    if isinstance(argument, TensorSpec):
        return tensors[argument.same_as]
    if isinstance(argument, Constant):
        return argument.value
    entries = [built(entry, tensors) for entry in argument.entries]
    if argument.kind == "dict":
        return dict(zip(argument.keys, entries, strict=True))
    if argument.kind == "slice":
        return slice(*entries)
    return tuple(entries) if argument.kind == "tuple" else entries


__all__ = [
    "PAYS",
    "SLOWER",
    "Arm",
    "Event",
    "TimeIsUp",
    "Timer",
    "built",
    "cpu_timer",
    "event_timer",
    "random_states_kept",
    "random_tensors",
    "replay",
    "timed_rounds",
    "timer_of",
]
