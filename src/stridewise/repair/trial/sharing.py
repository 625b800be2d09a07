"""Which tensors share memory, and whether a changed program makes others share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from stridewise.repair.refused import Refused

_MOST_BYTES = 1 << 30
_MOST_PAIRS = 1000


class Place(Struct, frozen=True):
    """Where in memory elements lie: the address of the first byte, and steps in bytes."""

    device: str
    start: int
    item: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    """Of dimensions with more than one element of their own; from the lowest address on, so none is negative."""

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return (
            self.start + self.item + sum((size - 1) * step for size, step in zip(self.sizes, self.steps, strict=True))
        )

    def overlaps(self, other: "Place") -> bool:
        """Whether an element of the one is an element of the other: slices may lie between each other's rows."""
        if self.device != other.device or self.end <= other.start or other.end <= self.start:
            return False
        begin, end = min(self.start, other.start), max(self.end, other.end)
        if end - begin > _MOST_BYTES:
            return True  # to be on the safe side
        mask = torch.zeros(end - begin, dtype=torch.bool)
        self._in(mask, begin).fill_(True)
        return bool(other._in(mask, begin).any())

    def _in(self, mask: Tensor, begin: int) -> Tensor:
        return mask.as_strided((*self.sizes, self.item), (*self.steps, 1), self.start - begin)


def place_of(value: "Tensor | np.ndarray[Any, Any]") -> Place | None:
    """Where a strided tensor or an array lies; None if it has no memory."""
    if isinstance(value, Tensor):
        if value.is_meta or value.numel() == 0:
            return None
        item = value.element_size()
        start, steps, device = value.data_ptr(), [stride * item for stride in value.stride()], str(value.device)
    else:
        if value.size == 0:
            return None
        item, steps, device = value.itemsize, list(value.strides), "cpu"
        start = value.__array_interface__["data"][0]
    start += sum((size - 1) * step for size, step in zip(value.shape, steps, strict=True) if step < 0)
    used = [(size, abs(step)) for size, step in zip(value.shape, steps, strict=True) if size > 1 and step != 0]
    return Place(device, start, item, tuple(size for size, _ in used), tuple(step for _, step in used))


class Sharing(Struct, frozen=True):
    """Where results and the tensors of a program lie after a step."""

    places: dict[str, Place]
    program: frozenset[str] = frozenset()
    """Which of them are the program's: parameters, buffers, what it keeps, and not the inputs."""
    inputs: frozenset[str] = frozenset()

    def groups(self) -> dict[str, int]:
        """A number for each name: the same for those whose stretches of memory touch."""
        found: dict[str, int] = {}
        end, device, number = 0, "", 0
        for name, place in sorted(self.places.items(), key=lambda row: (row[1].device, row[1].start)):
            if place.device != device or place.start >= end:
                number, end = number + 1, 0
            end, device = max(end, place.end), place.device
            found[name] = number
        return found


def check(before: Sharing, after: Sharing) -> None:
    """Raise Refused if a changed program's results share memory that the original's don't, or the other way round.

    That a result no longer is a view of an input, or of another result, is let pass: torch leaves that to layout in
    `reshape`, `contiguous` and `to`, so callers can't rely on it. What is no longer a view of something that the
    program keeps would no longer follow it.
    """
    old, new = before.groups(), after.groups()
    for one, other in _parted(new, old):
        if after.places[one].overlaps(after.places[other]):
            what = "whoever writes to one changes the other"
            raise Refused(f"{_pair(before, one, other, 'would share memory with')}: {what}")
    for one, other in _parted(old, new):
        if {one, other} & before.program and before.places[one].overlaps(before.places[other]):
            what = "a write to one would not be seen in the other"
            raise Refused(f"{_pair(before, one, other, 'would no longer share memory with')}: {what}")


def _parted(together: Mapping[str, int], apart: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs that share a group here and not there."""
    members = defaultdict(list)
    for name, group in together.items():
        members[group].append(name)
    for names in members.values():
        there = [apart.get(name, -number) for number, name in enumerate(names, 1)]
        if all(one == other for one, other in pairwise(there)):
            continue
        pairs = combinations(zip(names, there, strict=True), 2)
        parted = ((one, other) for (one, here), (other, at) in pairs if here != at)
        yield from (pair for pair, _ in zip(parted, range(_MOST_PAIRS), strict=False))


def _pair(sharing: Sharing, one: str, other: str, verb: str) -> str:
    """The result first."""
    known = sharing.program | sharing.inputs
    first, second = sorted((one, other), key=lambda name: (name in known, name))
    return f"{first} {verb} {second}"
