"""One call of a callable: with the random numbers of a seed, without its warnings, and what it gave."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise.checks.operators.memory import Watched
from stridewise.checks.operators.operands import not_strided, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

_MOST_NUMBERS = 1000
"""Of a list that are compared."""
_LONGEST = 300
"""Characters of an exception's message that are kept."""


class Ran(Struct):
    """What one run gave. Results are copies: an operator may give the same memory again at its next call."""

    results: dict[str, Tensor]
    """Outputs or gradients by name, contiguous."""
    strides: dict[str, tuple[int, ...]]
    """Of the outputs as they were given."""
    operands: dict[str, Watched]

    def held(self, written: Collection[str]) -> dict[str, Tensor]:
        """Results, and what operands hold that it writes."""
        return self.results | {name: self.operands[name].values() for name in self.operands if name in written}


_INTERPRETED = "The following operation failed in the TorchScript interpreter."


class Raised(Exception):
    """The callable raised; its text says what."""


def called(run: Callable[[], Any], seed: int) -> Any:
    """What it gives with the random numbers of a seed; the program's own are as before. Raises Raised."""
    try:
        with _random_numbers_of(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when it ran in the program
            return run()
    except Exception as error:
        # TorchScript's interpreter puts its own traceback in front of what was raised.
        lines = [line for line in str(error).splitlines() if line.strip()]
        whole = lines[-1] if lines and lines[0].startswith(_INTERPRETED) else str(error)
        text = " ".join(whole.split()).removeprefix(f"{type(error).__name__}: ")[:_LONGEST]
        raise Raised(f"{type(error).__name__}: {text}" if text else type(error).__name__) from None


def given(output: Any, operands: dict[str, Watched]) -> Ran:
    """What a call gave: tensors, arrays and numbers by name."""
    found = tensors_in(output)
    results = {name: copied(tensor) for name, tensor in found.items()} | dict(_others_in(output, "output", 3))
    return Ran(results, {name: tuple(tensor.stride()) for name, tensor in found.items()}, operands)


def _others_in(value: Any, name: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    """What is no plain tensor, and has values all the same: numbers, arrays, sparse tensors, and subclasses'."""
    import torch

    if isinstance(value, torch.Tensor):
        if not_strided(value) and (plain := _plain(value)) is not None:
            yield name, plain
    elif isinstance(value, (bool, int, float, complex)):
        with contextlib.suppress(OverflowError, RuntimeError):  # an integer of more than 64 bits
            kind = {bool: torch.bool, int: torch.int64, float: torch.float64}.get(type(value))
            yield name, torch.tensor(value, dtype=kind)
    elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # of objects, or text
            yield name, torch.from_numpy(value.copy()) if hasattr(value, "setflags") else torch.as_tensor(value)
    elif depth and isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _others_in(entry, f"{name}.{key}", depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for at, entry in enumerate(itertools.islice(value, _MOST_NUMBERS)):
            yield from _others_in(entry, f"{name}[{at}]", depth - 1)


def _plain(tensor: Tensor) -> Tensor | None:
    """The values of a tensor that has no strides of its own, or is of a class of its own; None if there are none."""
    import torch

    if tensor.is_meta or tensor.is_nested or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None
    with torch._C.DisableTorchFunctionSubclass():
        try:
            dense = tensor.dequantize() if tensor.is_quantized else tensor
            dense = dense if dense.layout is torch.strided else dense.to_dense()
            return copied(dense.as_subclass(torch.Tensor))
        except (RuntimeError, NotImplementedError):
            return None


def tensors_in(output: Any) -> dict[str, Tensor]:
    """The tensors of an output that have strides, by name."""
    return {name: tensor for name, tensor in tensors_of(output, "output") if not not_strided(tensor)}


def copied(tensor: Tensor) -> Tensor:
    """Its values now, contiguous; of a sparse one, as gradients of an embedding may be, with its zeros."""
    import torch

    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def nudged(values: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """The same values rounded otherwise: each by a step or two of its dtype, up or down."""
    import torch

    source = torch.Generator().manual_seed(number)
    found = {}
    for name, value in values.items():
        if value.is_floating_point() or value.is_complex():
            steps = 4 * torch.rand(value.shape, generator=source, dtype=torch.float64) - 2
            factor = 1 + torch.finfo(value.dtype).eps * steps.to(value.device)
            wide = value.to(torch.complex128 if value.is_complex() else torch.float64)
            value = (wide * factor).to(value.dtype)
        found[name] = value
    return found


@contextmanager
def _random_numbers_of(seed: int) -> Iterator[None]:
    import torch

    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy is not None else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        # torch.manual_seed notes a stack trace for devices that were never used, which takes longer than most calls.
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        if numpy is not None:
            numpy.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy is not None:
                numpy.random.set_state(states[1])
