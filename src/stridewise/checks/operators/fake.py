"""The strides that an operator promises on tensors without data, as compilers ask, against those that it gives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stridewise.checks.operators.case import Arrangement, Fault
from stridewise.checks.operators.grid import place
from stridewise.checks.operators.operands import Bound, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

Promised = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Sizes and strides of each output."""


class NotFake(Exception):
    """It does not run on tensors without data."""


def promised(bound: Bound, operands: Mapping[str, tuple[Tensor, Arrangement]]) -> Promised:
    """What it says of its outputs for operands in some layouts. Raises NotFake if it can't say."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _no_addresses(), mode, torch.no_grad():
            given = {name: _empty(value, arrangement) for name, (value, arrangement) in operands.items()}
            output = bound.call(given)
            return {
                name: (tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())))
                for name, tensor in tensors_of(output, "output")
                if tensor.layout is torch.strided
            }
    except UserWarning:
        raise NotFake("it asks for the address of its operands, and has no fake kernel") from None
    except Exception as error:
        text = " ".join(str(error).split())[:200].rstrip(".")
        raise NotFake(f"on tensors without data it raises {type(error).__name__}: {text}") from None


def broken_promises(promised: Promised, results: Mapping[str, Any]) -> Iterator[Fault]:
    """Outputs whose strides are others than promised; dimensions of size 1 do not count."""
    for name, (sizes, strides) in promised.items():
        real = results.get(name)
        if real is None or not real.numel():
            continue
        if tuple(real.shape) != sizes:
            yield Fault("wrong values", name, f"sizes {sizes} are promised, and {tuple(real.shape)} given")
            continue
        apart = [size > 1 and one != other for size, one, other in zip(sizes, strides, real.stride(), strict=True)]
        if any(apart):
            yield Fault("wrong values", name, f"strides {strides} are promised, and {real.stride()} given, for {sizes}")


@contextmanager
def _no_addresses() -> Iterator[None]:
    """Raise where the address of data that is not there is asked for: torch only warns, and once."""
    import torch

    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="Accessing the data pointer of FakeTensor")
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)


def _empty(value: Tensor, arrangement: Arrangement) -> Tensor:
    import torch

    placement = place(arrangement, tuple(value.shape))
    base = torch.empty(placement.extent, dtype=value.dtype, device=value.device)
    return base.as_strided(tuple(value.shape), placement.layout.strides, placement.layout.offset)
