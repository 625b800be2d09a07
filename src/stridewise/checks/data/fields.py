"""The tensors and arrays in a sample or a batch, with their paths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from stridewise import layout
from stridewise.checks.data.arrays import facts_of
from stridewise.checks.words import described, layout_of
from stridewise.layout import Layout

ROOT = "batch"
"""The path of what is no container."""
_DEEPEST = 8
_MOST_ENTRIES = 10_000


class Leaf(Struct, frozen=True):
    """A tensor or an array, and where it was found."""

    path: str
    value: Any
    layout: Layout | None
    """None if it has no strides, or not those of its memory, and for arrays that no tensor can look at."""
    itemsize: int

    @property
    def words(self) -> str:
        """Its layout in words."""
        if self.layout is not None:
            return described(self.layout)
        facts = facts_of(self.value, self.path)
        return facts.words if facts is not None else f"{type(self.value).__name__} without strides"

    @property
    def view_bytes(self) -> int:
        """Of its elements, those that several indices share counted once."""
        if self.layout is None:
            try:
                return int(getattr(self.value, "nbytes", 0))
            except RuntimeError:  # sparse, nested
                return 0
        return layout.stored(self.layout) * self.itemsize

    @property
    def storage(self) -> tuple[int, int] | None:
        """Address and size in bytes of the storage that a tensor holds, or of the array that owns an array's memory."""
        import torch

        if isinstance(self.value, torch.Tensor):
            if self.layout is None:
                return None
            held = self.value.untyped_storage()
            return held.data_ptr(), held.nbytes()
        owner: Any = self.value
        while type(base := getattr(owner, "base", None)) is type(owner):
            owner = base
        return id(owner), int(owner.nbytes)


def leaves_of(value: Any) -> list[Leaf]:
    """The tensors and arrays in a value of tuples, lists, mappings, named tuples and dataclasses, in order."""
    return list(_leaves(value, "", _DEEPEST))


def _leaves(value: Any, path: str, depth: int) -> Iterator[Leaf]:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        yield Leaf(path or ROOT, value, layout_of(value), value.element_size())
    elif isinstance(value, np.ndarray):
        yield Leaf(path or ROOT, value, _array_layout(value), value.itemsize)
    elif depth:
        for step, entry in _entries(value):
            yield from _leaves(entry, path + step if path else step.removeprefix("."), depth - 1)


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, with the step to each."""
    if isinstance(value, Mapping):
        pairs: Iterator[tuple[str, Any]] = ((f".{key}", entry) for key, entry in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = ((f".{name}", entry) for name, entry in zip(value._fields, value, strict=True))
    elif isinstance(value, (tuple, list)):
        if value and type(value[0]) in (int, float, str, bool):  # a row of numbers, of which there may be very many
            return
        pairs = ((f"[{at}]", entry) for at, entry in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    else:
        return
    yield from itertools.islice(pairs, _MOST_ENTRIES)


def _array_layout(array: Any) -> Layout | None:
    facts = facts_of(array, "")
    if facts is None or not facts.itemsize or any(stride < 0 or stride % facts.itemsize for stride in facts.strides):
        return None
    return Layout(facts.sizes, tuple(stride // facts.itemsize for stride in facts.strides))
