"""Which tensors can be brought into another layout and back, and why others can't."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from stridewise.recorder.tensors import tensors_in
from stridewise.repair.candidate import Format
from stridewise.repair.reading.nest import leaves
from stridewise.repair.refused import Refused

IMAGES = {4: torch.channels_last, 5: torch.channels_last_3d}
"""What channels_last means for a tensor of so many dimensions."""


def check_tensor(path: str, tensor: Tensor, format: Format) -> None:
    """Raise Refused unless a tensor of the model can be brought into a format and back."""
    reason = unfit(tensor) or _without_format(tensor, format)
    if reason is not None:
        raise Refused(f"`{path}` {reason}")


def check_input(path: str, tensor: Tensor, format: Format) -> None:
    """Raise Refused unless an input can be brought into a format."""
    reason = None if has_strides(tensor) else "has no strides"
    if reason := reason or _without_format(tensor, format):
        raise Refused(f"the input `{path}` {reason}")


def unfit(tensor: Tensor) -> str | None:
    """Why a tensor's memory can't be swapped, in words that go after its name; None if it can."""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return f"is a {type(tensor).__name__}, whose strides need not be its memory's"
    if is_lazy(tensor):
        return "has no shape before the first call"
    if tensor.is_quantized:
        return "is quantized"
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "is not strided"
    if tensor.is_meta:
        return "is on the meta device: it has no values"
    if tensor.is_inference():
        return "was made in inference mode"
    if tensor.is_conj() or tensor.is_neg():
        return "has its conjugation or negation still to be done"
    if not tensor.is_leaf:
        return "is the result of a computation that a backward goes through"
    if tensor.device.type == "cpu" and tensor.is_shared():
        return "lies in memory that other processes share"
    return None


def has_strides(tensor: Tensor) -> bool:
    """Whether a tensor's strides are those of its memory."""
    plain = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__ and not is_lazy(tensor)
    return plain and not tensor.is_nested and tensor.layout is torch.strided


def followers(tensor: Tensor, optimizers: Iterable[Optimizer]) -> Iterator[Tensor]:
    """What has a parameter's layout: its gradient, and what optimizers keep of its size."""
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad
    for optimizer in optimizers:
        for value in optimizer.state.get(tensor, {}).values():
            if isinstance(value, Tensor) and value.shape == tensor.shape:
                yield value


def check_program(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: Mapping[str, Tensor],
    optimizers: tuple[Optimizer, ...],
) -> None:
    """Raise Refused where something else relies on the memory of tensors that are to move."""
    for module in model.modules():
        if isinstance(module, DistributedDataParallel) or type(module).__name__ == "FullyShardedDataParallel":
            kind = type(module).__name__
            raise Refused(f"{kind} keeps the strides that parameters had when it was made: convert, then wrap")
    moving = {id(tensor) for tensor in tensors.values()}
    for path, tensor in tensors.items():
        for follower in followers(tensor, optimizers):
            if reason := unfit(follower):
                raise Refused(f"{_FOLLOWER} of `{path}` {reason}")
            moving.add(id(follower))
    # Two tensors in one memory would no longer be, once one of them is converted.
    owners: dict[tuple[torch.device, int], dict[int, str]] = {}
    for name, tensor in _known(model, args, kwargs, optimizers):
        if has_strides(tensor) and not tensor.is_meta and tensor.numel():
            memory = tensor.device, tensor.untyped_storage().data_ptr()
            owners.setdefault(memory, {}).setdefault(id(tensor), name)
    for held in owners.values():
        if len(held) > 1 and not moving.isdisjoint(held):
            mine = next(number for number in held if number in moving)
            other = next(name for number, name in held.items() if number != mine)
            raise Refused(f"{held[mine]} shares its memory with {other}")


_FOLLOWER = "the gradient or an optimizer's state"


def _known(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], optimizers: tuple[Optimizer, ...]
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that can be found from the model, its inputs and the optimizers, each with words for it."""
    named = [*model.named_parameters(), *model.named_buffers()]
    yield from ((f"`{path}`", tensor) for path, tensor in named)
    for path, tensor in named:
        yield from ((f"{_FOLLOWER} of `{path}`", follower) for follower in followers(tensor, optimizers))
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in ("_parameters", "_buffers", "_modules")}
        yield from ((f"`{path}`", tensor) for path, tensor in tensors_in(own, name))
    for path, given in (*leaves(args), *leaves(kwargs)):
        if isinstance(given, Tensor):
            yield f"the input `{path}`", given


def _without_format(tensor: Tensor, format: Format) -> str | None:
    if format == "channels_last" and tensor.dim() not in IMAGES:
        return f"has {tensor.dim()} dimensions, and channels_last needs 4 or 5"
    return None
