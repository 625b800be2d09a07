"""The settings of torch that experiments take for granted, whatever the program that calls has set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from stridewise.errors import RecordingError, UsageError

MOST_THREADS = 1024
"""torch itself has no bound, and crashes."""


@contextlib.contextmanager
def settings(threads: int | None) -> Iterator[list[str]]:
    """torch as it is by default, with so many threads; gives notes on what is otherwise and can't be put right.

    That is all that `_switches` lists, autocast, inference mode, gradients, anomaly detection and the stance of
    torch.compile, whose configuration stays. Afterwards all is as before. Raises UsageError where no experiment could
    run: on another default device, under a mode of torch, or while something is recorded.
    """
    import torch

    _right_number(threads)
    _outside_modes()
    if torch.empty(0).device.type != "cpu":
        raise UsageError(f"torch's default device is {torch.empty(0).device}: the lab needs the CPU there.")
    _can_record()
    notes = []
    if not torch.backends.mkldnn.is_available():
        notes.append("This torch has no oneDNN: convolutions take other ways than usual.")
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads or torch.get_num_threads())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        stack.enter_context(torch.compiler.set_stance("default"))
        stack.enter_context(_outside_autocast())
        known = [_set(switch, stack) for switch in _switches()]
        if not all(known):
            notes.append("`fp32_precision` of torch.backends is set: float32 products may round otherwise than usual.")
        yield notes


def _right_number(threads: object) -> None:
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise UsageError(f"threads={threads!r}: it takes a whole number of 1 to {MOST_THREADS}, or None.")
    if not 0 < threads <= MOST_THREADS:
        raise UsageError(f"{threads} threads: there have to be 1 to {MOST_THREADS}.")


def _outside_modes() -> None:
    """Under a mode, such as FakeTensorMode, other things run than a program runs.

    `torch.device` is asked for by itself, and so is a recording. The lists of modes are private, tried on 2.13; those
    of a torch without them go unseen.
    """
    from torch import overrides
    from torch.utils import _device, _python_dispatch

    dispatching: list[object] = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)()
    functions: list[object] = getattr(overrides, "_get_current_function_mode_stack", list)()
    for mode in (*dispatching, *functions):
        if not isinstance(mode, _device.DeviceContext) and not type(mode).__module__.startswith("stridewise."):
            raise UsageError(f"The lab was called under {type(mode).__name__}: leave this mode of torch first.")


class _Switch(NamedTuple):
    """Something that is set for the whole process."""

    get: Callable[[], Any]
    set: Callable[[Any], object]
    default: Any


def _switches() -> list[_Switch]:
    """Those that decide which kernels run, what they copy, or how they round."""
    import torch

    cuda, cudnn, mkldnn, mha = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn, torch.backends.mha
    found = [
        _Switch(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        _Switch(_determinism, _set_determinism, (False, False)),
        _Switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        _Switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, True),
        _Switch(mha.get_fastpath_enabled, mha.set_fastpath_enabled, True),
        _Switch(cuda.flash_sdp_enabled, cuda.enable_flash_sdp, True),
        _Switch(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, True),
        _Switch(cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
        _Switch(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, True),
    ]
    for device, low in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
        found += (
            _Switch(partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device), False),
            _Switch(partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device), low),
        )
    attributes = [
        (mkldnn, "enabled", True),
        (cudnn, "enabled", True),
        (cudnn, "benchmark", False),
        (cudnn, "deterministic", False),
        (cudnn, "allow_tf32", True),
    ]
    found += (_Switch(partial(getattr, of, name), partial(_assign, of, name), usual) for of, name, usual in attributes)
    return found


def _assign(of: Any, name: str, value: Any) -> None:
    """A flag of torch.backends, though the process may have ruled that out with `disable_global_flags`."""
    import torch

    unlocked = getattr(torch.backends, "__allow_nonbracketed_mutation", contextlib.nullcontext)
    with unlocked():
        setattr(of, name, value)


def _determinism() -> tuple[bool, bool]:
    """Whether algorithms have to be deterministic, and whether others are only warned of."""
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_determinism(wanted: tuple[bool, bool]) -> None:
    """By the function that tells the compiler too: `set_deterministic_debug_mode` does not."""
    import torch

    torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])


def _set(switch: _Switch, stack: contextlib.ExitStack) -> bool:
    """Whether a switch is at its default now, and the stack will put it back."""
    try:
        before = switch.get()
    except RuntimeError:  # it was set by `fp32_precision`, and can't be read by its older name
        return False
    if before != switch.default:
        stack.callback(switch.set, before)
        switch.set(switch.default)
    return True


@contextlib.contextmanager
def _outside_autocast() -> Iterator[None]:
    """As if no autocast region were around: torch forgets what it cast only where the outermost one ends."""
    import torch

    depth = torch.autocast_increment_nesting() - 1
    for _ in range(depth + 1):
        torch.autocast_decrement_nesting()
    try:
        yield
    finally:
        for _ in range(depth):
            torch.autocast_increment_nesting()


def _can_record() -> None:
    from stridewise.lab.recorded import record_call

    try:
        record_call(lambda: None)  # the first takes the longest, too
    except RecordingError as error:
        raise UsageError(f"The lab records what it measures, which can't be done here: {error.given}") from None
