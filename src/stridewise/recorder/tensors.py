"""The tensors that calls saw, each as it was at the time, without keeping one of them alive."""

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stridewise.layout import Layout
from stridewise.recorder import private

_Tensor = torch.Tensor
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.parameter.Buffer})
_META = torch.device("meta")
_MOST_ENTRIES = 1000
"""How far into an argument that holds very many things tensors are looked for."""


class TensorTable:
    """Numbers tensor objects, storages, layouts and states of tensors, from any thread and without a lock.

    A number is taken before the row is written under it, so rows are dictionaries that may lack a number.
    """

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int, int, int]] = {}
        """States of tensors: object, layout, storage, version."""
        self.layouts: dict[tuple[Any, ...], int] = {}
        """By sizes, strides, offset, dtype and device."""
        self._row_numbers = itertools.count()
        self._layout_numbers = itertools.count()
        self._numbers = itertools.count()
        """Of tensor objects and storages."""
        self._latest: dict[int, tuple[Any, ...]] = {}
        """Of each tensor object, by its address: its state when it was last seen. An address is used again."""
        self._storages: dict[int, tuple[Any, int]] = {}
        self.ref: Callable[[torch.Tensor], int] = self._make_ref()
        """The number of a tensor in its present state. It never raises; a layout that can't be had is unknown."""

    def _make_ref(self) -> Callable[[torch.Tensor], int]:
        # A closure: this runs three times a call, and attributes of `self` would cost a third of its time.
        latest_get = self._latest.get
        new_state, unknown = self._new_state, self._unknown

        def ref(tensor: torch.Tensor) -> int:
            try:
                if type(tensor) not in _PLAIN:
                    return self._of_subclass(tensor)
                known = latest_get(id(tensor))
                # Read at each use: `.data =`, `Module.to`, `resize_` and `t_` change them.
                if known is not None and known[0]() is tensor and known[2] >= 0:
                    storage, version, shape = tensor.untyped_storage(), tensor._version, tensor.shape
                    strides, offset = tensor.stride(), tensor.storage_offset()
                    if (
                        known[2] == version
                        and known[1]() is storage
                        and known[3] == shape
                        and known[4] == strides
                        and known[5] == offset
                    ):
                        index: int = known[6]
                        return index
                else:
                    version = -1 if tensor.is_inference() else tensor._version
                    storage, shape = tensor.untyped_storage(), tensor.shape
                    strides, offset = tensor.stride(), tensor.storage_offset()
                return new_state(tensor, storage, version, shape, strides, offset, tensor.dtype, tensor.device)
            except Exception:  # sparse, nested, functorch's, symbolic: no strides, no storage, or no plain numbers
                return unknown(tensor)

        return ref

    def object_number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor object that is alive and was seen, else None."""
        known = self._latest.get(id(tensor))
        return known[7] if known is not None and known[0]() is tensor else None

    def forget_all(self) -> None:
        """Keep no weak reference at all."""
        self._latest.clear()
        self._storages.clear()

    def _new_state(
        self,
        tensor: torch.Tensor,
        storage: Any,
        version: int,
        shape: Any,
        strides: Any,
        offset: Any,
        dtype: torch.dtype,
        device: torch.device,
    ) -> int:
        # Symbolic sizes must not be compared, which adds guards: hashing them raises, before anything is kept.
        key = (shape, strides, offset, dtype, device)
        layout = self.layouts.get(key)
        if layout is None:
            with torch._C.DisableTorchFunction():
                if tensor.layout is not torch.strided or tensor.is_nested:
                    return self._unknown(tensor)
            layout = self.layouts.setdefault(key, next(self._layout_numbers))
        address = id(tensor)
        known = self._latest.get(address)
        if known is not None and known[0]() is tensor:
            seen, number = known[0], known[7]
            if known[2:6] == (version, shape, strides, offset) and known[1]() is storage:
                same: int = known[6]
                return same
        else:
            seen, number = weakref.ref(tensor), next(self._numbers)
        stored = self._storages.get(id(storage))
        if stored is None or stored[0]() is not storage:
            stored = self._storages[id(storage)] = (weakref.ref(storage), next(self._numbers))
        index = next(self._row_numbers)
        self.rows[index] = (number, layout, stored[1], version)
        self._latest[address] = (seen, stored[0], version, shape, strides, offset, index, number)
        return index

    def _of_subclass(self, tensor: torch.Tensor) -> int:
        """A subclass's code must not run, and with a dispatch of its own its strides say nothing of its memory."""
        fake = private.is_fake(type(tensor))
        if not fake and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return self._unknown(tensor)
        with torch._C.DisableTorchFunction():
            storage = _Tensor.untyped_storage(tensor)
            version: int = -1 if _Tensor.is_inference(tensor) else _get(tensor, "_version")
            shape, strides, offset = _Tensor.size(tensor), _Tensor.stride(tensor), _Tensor.storage_offset(tensor)
            kind = _get(tensor, "dtype"), _META if fake else _get(tensor, "device")
            return self._new_state(tensor, storage, version, shape, strides, offset, *kind)

    def _unknown(self, tensor: torch.Tensor) -> int:
        """The number of a tensor of which only the identity is known."""
        known = self._latest.get(id(tensor))
        if known is None or known[0]() is not tensor:
            seen: Callable[[], torch.Tensor | None]
            try:
                seen = weakref.ref(tensor)
            except TypeError:  # something that only says it is a tensor
                seen = _nothing
            number = next(self._numbers)
        elif known[1] is _nothing:
            index: int = known[6]
            return index
        else:
            seen, number = known[0], known[7]
        index = next(self._row_numbers)
        self.rows[index] = (number, -1, -1, -1)
        self._latest[id(tensor)] = (seen, _nothing, -1, None, None, None, index, number)
        return index


def _get(tensor: torch.Tensor, name: str) -> Any:
    """Tensor's own attribute, whatever a subclass makes of the name."""
    return getattr(_Tensor, name).__get__(tensor)


def _nothing() -> None:
    """Stands where the weak reference to a storage would be."""


def tensors_in(value: Any, path: str = "", depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a module's arguments or results, each with its path: tuples, dicts and dataclasses too.

    Only exact or derived built-in containers are looked into, so no code of the program runs.
    """
    kind = type(value)
    if issubclass(kind, _Tensor):
        yield path, value
    elif depth == 0:
        return
    elif issubclass(kind, dict):
        for key, entry in itertools.islice(dict.items(value), _MOST_ENTRIES):
            name = str(key) if type(key) in (str, int) else f"<{type(key).__name__}>"
            yield from tensors_in(entry, f"{path}.{name}" if path else name, depth - 1)
    elif issubclass(kind, (list, tuple)):
        entries = (list if issubclass(kind, list) else tuple).__iter__(value)
        for position, entry in enumerate(itertools.islice(entries, _MOST_ENTRIES)):
            yield from tensors_in(entry, f"{path}[{position}]" if path else str(position), depth - 1)
    elif hasattr(kind, "__dataclass_fields__"):
        for name in kind.__dataclass_fields__:
            entry = getattr(value, "__dict__", {}).get(name)
            yield from tensors_in(entry, f"{path}.{name}" if path else name, depth - 1)


def layout_of(tensor: torch.Tensor, *, fake: bool = False) -> Layout | str:
    """A tensor's layout, or a sentence where it has none; with `fake` also that of a fake tensor, which has no memory.

    One with symbols for sizes has none.
    """
    kind = type(tensor)
    if fake and private.is_fake(kind):
        sizes, strides, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        if all(type(number) is int for number in (*sizes, *strides, offset)):
            return Layout(sizes, strides, int(offset))
        return f"{kind.__name__}: its sizes are symbols, no numbers."
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        what = "it decides by code of its own what its operators do; its strides need not be its memory's."
        return f"{kind.__name__}: {what}"
    with torch._C.DisableTorchFunction():
        if tensor.layout is not torch.strided or tensor.is_nested:
            what = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            return f"{what}: it has no strides; layout classes are for strided tensors."
        try:
            return Layout(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        except (RuntimeError, NotImplementedError) as error:
            return f"unknown: its strides can't be read ({str(error).splitlines()[0]})."
