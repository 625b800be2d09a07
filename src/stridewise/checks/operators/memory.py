"""Tensors with values in memory that is watched: all around them, and between their elements, lie canaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise.checks.operators.case import Arrangement
from stridewise.checks.operators.grid import place
from stridewise.layout import numel

if TYPE_CHECKING:
    from torch import Tensor

_ALIGNED = 64
"""Elements: no dtype is narrower than a byte, and torch aligns storages to 64 bytes."""


class Damage(Struct, frozen=True):
    """How many elements that are not the tensor's were written."""

    in_front: int
    between: int
    behind: int

    def __bool__(self) -> bool:
        return bool(self.in_front or self.between or self.behind)

    @property
    def words(self) -> str:
        """`2 elements in front of it and 1 element between its own were written`."""
        places = ((self.in_front, "in front of it"), (self.between, "between its own"), (self.behind, "behind it"))
        parts = [f"{count} element{'s' if count > 1 else ''} {where}" for count, where in places if count]
        were = "was" if self.in_front + self.between + self.behind == 1 else "were"
        return f"{' and '.join(filter(None, (', '.join(parts[:-1]), *parts[-1:])))} {were} written"


class Watched:
    """A tensor that holds some values as an arrangement says, and the canaries around it.

    `fill` is 0 or 1: what depends on it has read past the tensor. Canaries are as many elements as the tensor has in
    front of it and behind, and some more, so that a walk over its elements that ignores strides meets nothing else.
    With `own_storage` its storage begins where the arrangement does, behind the canaries: what asks for its offset
    hears what it would of a tensor that was allocated so. That takes the CPU.
    """

    def __init__(self, values: Tensor, arrangement: Arrangement, fill: int, *, own_storage: bool = False) -> None:
        import torch

        placement = place(arrangement, tuple(values.shape))
        guard = _ALIGNED * (numel(placement.layout) // _ALIGNED + 2)
        count = guard + placement.extent + guard
        first = guard + placement.layout.offset
        storage = canaries(values, count, fill)
        self._view = view = tuple(values.shape), placement.layout.strides, first
        places = torch.arange(count, device=values.device).as_strided(*view).reshape(-1)
        storage[places] = values.reshape(-1)
        # No view of another tensor: autograd has rules of its own for those, and `out=` could not resize it.
        if own_storage:
            block = torch.frombuffer(
                storage.view(torch.uint8).numpy(), dtype=torch.uint8, offset=guard * values.itemsize
            )
            given = block.untyped_storage(), placement.layout.offset
        else:
            given = storage.untyped_storage(), first
        self.tensor = values.new_empty(0).set_(given[0], given[1], view[0], view[1])
        self._storage = storage
        self._version = self.tensor._version
        self._before = storage.clone()
        self._own = torch.zeros(count, dtype=torch.bool, device=values.device)
        self._own[places] = True
        self._reach = (int(places.min()), int(places.max())) if places.numel() else (first, first - 1)

    def damage(self) -> Damage:
        """What was written outside of the tensor."""
        changed = (_bits(self._storage) != _bits(self._before)).any(1) & ~(self._own | self._grown())
        lowest, highest = self._reach
        front, behind = int(changed[:lowest].sum()), int(changed[highest + 1 :].sum())
        return Damage(front, int(changed.sum()) - front - behind, behind)

    def _grown(self) -> Tensor:
        """What became the tensor's own because the operator gave it another size, as it may with `out`."""
        import torch

        now = self.tensor.detach()
        own = torch.zeros_like(self._own)
        is_same_memory = now.untyped_storage().data_ptr() == self._storage.untyped_storage().data_ptr()
        if is_same_memory and (tuple(now.shape), now.stride(), now.storage_offset()) != self._view:
            places = torch.arange(self._storage.untyped_storage().nbytes() // now.element_size(), device=now.device)
            places = places.as_strided(now.shape, now.stride(), now.storage_offset()).reshape(-1)
            own[places[places < own.numel()]] = True
        return own

    def values(self) -> Tensor:
        """What the tensor holds now, contiguous."""
        import torch

        return self.tensor.detach().clone(memory_format=torch.contiguous_format)

    @property
    def is_written(self) -> bool:
        """Whether it was written, be it with the values that it had."""
        return self.tensor._version > self._version or self.is_changed()

    def is_changed(self) -> bool:
        """Whether any of its own elements was written with another value."""
        return bool(((_bits(self._storage) != _bits(self._before)).any(1) & self._own).any())


def canaries(values: Tensor, count: int, fill: int) -> Tensor:
    """Values that are no wild ones, and that are not the tensor's: for floats just outside of its range.

    For integers they are its own values, in another order: an index that is read from there is in range.
    """
    import torch

    if values.is_floating_point() or values.is_complex():
        known = values.detach().abs().double() if values.is_floating_point() else values.detach().abs()
        known = known[torch.isfinite(known)]
        largest = min(float(known.max()) if known.numel() else 0.0, torch.finfo(values.dtype).max / 8)
        return torch.full((count,), (2 * largest + 1) * (1 if fill else -1), dtype=values.dtype, device=values.device)
    flat = values.detach().reshape(-1)
    if not flat.numel():
        return torch.zeros(count, dtype=values.dtype, device=values.device)
    ordered = flat.sort(descending=bool(fill)).values
    return ordered.repeat(count // ordered.numel() + 1)[:count].contiguous()


def arranged_values(values: Tensor, arrangement: Arrangement) -> Tensor:
    """The values that a tensor has once its indices share elements as the arrangement says: those of the first ones."""
    import torch

    if arrangement.writable:
        return values.contiguous()
    placement = place(arrangement, tuple(values.shape))
    view = tuple(values.shape), placement.layout.strides, placement.layout.offset
    flat = values.reshape(-1)
    if not flat.numel():
        return values.contiguous()
    block = flat.repeat(placement.extent // flat.numel() + 1)[: placement.extent].clone()
    places = torch.arange(placement.extent, device=values.device).as_strided(*view).reshape(-1)
    block[places.flip(0)] = flat.flip(0)  # the first of those that share an element comes last, and stays
    return block.as_strided(*view).clone().contiguous()


def _bits(tensor: Tensor) -> Tensor:
    import torch

    return tensor.view(torch.uint8).reshape(tensor.numel(), -1)
