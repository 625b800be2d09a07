"""Tensors of every kind of layout inside larger memory whose other values are known."""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

KINDS = ("contiguous", "permuted", "gapped", "rows", "expanded", "overlapping")
SHAPE = (2, 3, 2, 2)
_PAD = 64


def strides_of(kind: str, shape: tuple[int, ...]) -> list[int]:
    packed = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    match kind:
        case "contiguous":
            return packed
        case "permuted":
            return [math.prod(shape[:dim]) for dim in range(len(shape))]
        case "gapped":
            return [2 * stride for stride in packed]
        case "rows":
            return [2 * packed[0], *packed[1:]]
        case "expanded":
            return [0, *packed[1:]]
        case "overlapping":
            return [1] * len(shape)
    raise ValueError(kind)


class Buffer:
    """A tensor `view` of a kind of layout. Around it lie values that are other ones on each rank."""

    def __init__(self, kind: str, salt: int = 0, shape: tuple[int, ...] = SHAPE, rank: int | None = None) -> None:
        rank = dist.get_rank() if rank is None else rank
        strides = strides_of(kind, shape)
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        self.memory = torch.full((2 * _PAD + 2 * max(span, math.prod(shape)),), -7.0 - rank)
        self.view = self.memory.as_strided(shape, strides, _PAD)
        own = torch.zeros_like(self.memory, dtype=torch.bool)
        own.as_strided(shape, strides, _PAD).fill_(True)
        self._outside = ~own
        if int(own.sum()) < math.prod(shape):  # elements share memory
            self.memory[own] = torch.arange(int(own.sum())) + 100.0 * rank + 1000 * salt
        else:
            self.view.copy_(torch.arange(math.prod(shape)).reshape(shape) + 100.0 * rank + 1000 * salt)
        self.values = self.view.clone(memory_format=torch.contiguous_format)
        self._before = self.memory.clone()

    def fault(self, wanted: Tensor | None) -> str | None:
        """What is wrong with it after a call: `wanted` are the values to find, None for those from before."""
        if not torch.equal(self.memory[self._outside], self._before[self._outside]):
            return "writes outside"
        return None if torch.equal(self.view, self.values if wanted is None else wanted) else "wrong"


def of_all(values: Tensor) -> list[Tensor]:
    """A contiguous tensor of each rank."""
    found = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(found, values)
    return found


def faults(*checked: tuple[Buffer, Any]) -> str:
    """`right`, or what is wrong with some buffers and the values that were wanted there."""
    found = {fault for buffer, wanted in checked if (fault := buffer.fault(wanted))}
    return ", ".join(sorted(found)) or "right"
