"""The strides that an operator promises on tensors without data, as compilers ask, against those that it gives."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stridewise.checks.operators.case import Arrangement, Fault
from stridewise.checks.operators.grid import CONTIGUOUS, place
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

    with _on_no_data(operands) as given:
        output = bound.call(given)
        return {
            name: (tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())))
            for name, tensor in tensors_of(output, "output")
            if tensor.layout is torch.strided
        }


def is_of_torch(bound: Bound, values: Mapping[str, Tensor]) -> bool:
    """Whether it is made of nothing but torch's own operators, which take every dtype that they do not refuse."""
    from torch.utils._python_dispatch import TorchDispatchMode

    spaces: set[str] = set()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            spaces.add(func.namespace)
            return func(*args, **(kwargs or {}))

    try:
        with _on_no_data({name: (value, CONTIGUOUS) for name, value in values.items()}) as given, Seen():  # type: ignore[no-untyped-call]
            bound.call(given)
    except NotFake:
        return False
    return spaces <= {"aten", "prims"}


@contextmanager
def _on_no_data(operands: Mapping[str, tuple[Tensor, Arrangement]]) -> Iterator[dict[str, Tensor]]:
    """Operands without data; NotFake for what is raised with them."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    _refuse_addresses(mode)
    try:
        with _quiet(), mode, torch.no_grad():
            yield {name: _empty(value, arrangement) for name, (value, arrangement) in operands.items()}
    except Exception as error:
        if "data pointer" in str(error):
            raise NotFake("it asks for the address of its operands, and has no fake kernel") from None
        text = " ".join(str(error).split())[:200].rstrip(".")
        raise NotFake(f"on tensors without data it raises {type(error).__name__}: {text}") from None


def broken_promises(promised: Promised, given: Promised) -> Iterator[Fault]:
    """Outputs whose sizes or strides are others than promised; strides of dimensions of size 1 do not count."""
    for name, (sizes, strides) in promised.items():
        if name not in given:
            continue
        real_sizes, real = given[name]
        if real_sizes != sizes:
            yield Fault("wrong values", name, f"sizes {sizes} are promised, and {real_sizes} given")
        elif 0 not in sizes and any(
            size > 1 and one != other for size, one, other in zip(sizes, strides, real, strict=True)
        ):
            yield Fault("wrong values", name, f"strides {strides} are promised, and {real} given, for {sizes}")


def _refuse_addresses(mode: Any) -> None:
    """Let it raise where the address of data that is not there is asked for: else it is 0, and a kernel would read it.

    A private switch of torch's, tried on 2.13; without it nothing is compared.
    """
    if not hasattr(mode, "_allow_unsafe_data_ptr_access"):
        raise NotFake("this torch gives addresses of data that is not there")
    mode._allow_unsafe_data_ptr_access = False


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings, and what torch logs of a fake kernel that raises."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = was_disabled


def _empty(value: Tensor, arrangement: Arrangement) -> Tensor:
    import torch

    placement = place(arrangement, tuple(value.shape))
    base = torch.empty(placement.extent, dtype=value.dtype, device=value.device)
    return base.as_strided(tuple(value.shape), placement.layout.strides, placement.layout.offset)
