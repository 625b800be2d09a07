"""Live objects in another layout, and back: what a candidate's conversions stand for."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from stridewise.repair.candidate import Conversion, Format
from stridewise.repair.reading.nest import mapped
from stridewise.repair.refused import Refused
from stridewise.repair.trial.fit import IMAGES, check_input, check_program, check_tensor, followers, has_strides, unfit

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def laid_out(tensor: Tensor, format: Format) -> Tensor:
    """A tensor in a format: itself if it is in that already.

    For channels_last it takes `to`: `contiguous` leaves an image with one channel or one pixel the strides by which
    convolutions take it for row-major.
    """
    return tensor.contiguous() if format == "contiguous" else tensor.to(memory_format=IMAGES[tensor.dim()])


class Converted:
    """A program's objects, which `enter` brings into the layout of a candidate and `leave` back.

    Both swap memory, so they cost next to nothing while values stay. `args` and `kwargs` are the converted inputs, made
    once: what a loader's worker would hand over. `inputs` converts anew, as a part of the step.
    """

    def __init__(
        self,
        tensors: Iterable[tuple[Tensor, Format]],
        inputs: Mapping[str, Format],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        optimizers: Iterable[Optimizer],
    ) -> None:
        self._swaps = [_Swap(tensor, format) for tensor, format in tensors]
        self._optimizers = tuple(optimizers)
        self._followers: dict[int, _Swap] = {}
        """Of gradients and optimizer states, by the tensor's id: that of one which is kept alive here."""
        self._inputs = dict(inputs)
        self.args, self.kwargs = _convert_inputs(self._inputs, args, kwargs, _made_outside)

    @property
    def converts_inputs(self) -> bool:
        """Whether `inputs` does anything."""
        return bool(self._inputs)

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        """Arguments of the model, converted here and now: gradients flow back to the tensors that were given."""
        return _convert_inputs(self._inputs, args, kwargs, laid_out)

    def enter(self, *, refresh: bool = False) -> None:
        """Bring everything into the new layout; what is in it stays as it is.

        The first time, and where values are kept, they are taken along; else only if a tensor's version counter, which
        does not count writes through `.data`, or `refresh` says that they may have changed.
        """
        for swap in self._swaps:
            if not swap.enter(refresh):
                continue
            for follower in followers(swap.tensor, self._optimizers):
                if unfit(follower) is None:
                    found = self._followers.get(id(follower)) or _Swap(follower, swap.format)
                    self._followers[id(follower)] = found
                    found.enter(refresh)

    def leave(self, *, keep: bool = False) -> None:
        """Bring everything back into the very memory that it was in.

        The values there are those from before `enter`; with `keep`, those that the program has made of them since.
        Gradients and optimizer states that are new get the strides of their parameters.
        """
        attached = {}
        for swap in self._swaps:
            was_in = swap.leave(keep)
            for follower in followers(swap.tensor, self._optimizers):
                found = self._followers.get(id(follower))
                if found is not None:
                    attached[id(follower)] = found
                elif was_in and unfit(follower) is None:
                    _lay_like(follower, swap.tensor)
        for found in self._followers.values():
            found.leave(keep)
        self._followers = attached


_UNKNOWN = -1
"""The version counter of a tensor whose values may be others by now."""


class _Swap:
    """One tensor, and its two places in memory."""

    __slots__ = ("_new", "_original", "_version", "format", "tensor")

    def __init__(self, tensor: Tensor, format: Format) -> None:
        self.tensor = tensor
        self.format = format
        self._take(tensor.data)

    def _take(self, original: Tensor) -> None:
        self._original = original
        new = laid_out(original, self.format)
        self._new = new.clone() if new is original else new
        self._version = _UNKNOWN

    def enter(self, refresh: bool) -> bool:
        """False if it was in already."""
        here = self.tensor.data
        if _place(here) == _place(self._new):
            return False
        if _place(here) != _place(self._original):  # the program gave it other memory meanwhile
            self._take(here)
        elif refresh or self._version != self.tensor._version:
            self._new.copy_(self._original)
        self.tensor.data = self._new
        self._version = self.tensor._version
        return True

    def leave(self, keep: bool) -> bool:
        """False if it was out already."""
        here = self.tensor.data
        if _place(here) == _place(self._original):
            return False
        if keep:
            if _place(here) != _place(self._new):
                return True  # it is in memory that the program itself chose
            if not _overlaps_itself(self._original):  # else no program can have written to it
                self._original.copy_(self._new)
            self._version = _UNKNOWN
        self.tensor.data = self._original
        return True


def convert(
    model: nn.Module | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    conversions: Iterable[Conversion],
    optimizers: Iterable[Optimizer] = (),
) -> Converted:
    """What conversions make of a model, of the inputs it is called with, and of what optimizers keep.

    Nothing is changed before `enter`. Raises Refused where the objects can't be converted and brought back exactly, or
    are in that layout already.
    """
    optimizers = tuple(optimizers)
    tensors: dict[str, Tensor] = {}
    formats: dict[str, Format] = {}
    inputs: dict[str, Format] = {}
    for conversion in conversions:
        if conversion.what == "inputs":
            inputs[conversion.path] = conversion.format
            continue
        found = _find(model, conversion)
        check_tensor(conversion.path, found, conversion.format)
        tied = any(found is tensor for tensor in tensors.values())
        if not tied and laid_out(found.detach(), conversion.format).stride() != found.stride():
            tensors[conversion.path], formats[conversion.path] = found, conversion.format
    if tensors:
        assert model is not None
        check_program(model, args, kwargs, tensors, optimizers)
    if not _changes_inputs(inputs, args, kwargs) and not tensors:
        raise Refused("everything is in that layout already")
    pairs = [(tensor, formats[path]) for path, tensor in tensors.items()]
    return Converted(pairs, inputs, args, kwargs, optimizers)


def _find(model: nn.Module | None, conversion: Conversion) -> Tensor:
    if model is None:
        raise Refused("the program has no model whose tensors could be converted")
    named: dict[str, Tensor] = {}
    if conversion.what == "parameter":
        named = dict(model.named_parameters(remove_duplicate=False))
    elif conversion.what == "buffer":
        named = dict(model.named_buffers(remove_duplicate=False))
    found = named.get(conversion.path)
    if found is None:
        owner, _, name = conversion.path.rpartition(".")
        holder = _at(model, owner)
        if isinstance(holder, nn.Module) and parametrize.is_parametrized(holder, name):
            raise Refused(f"`{conversion.path}` is computed anew at each use, by a parametrization")
        found = _at(holder, name)
    if not isinstance(found, Tensor):
        raise Refused(f"the model has no tensor `{conversion.path}`")
    return found


def _at(start: Any, path: str) -> Any:
    """What a dotted path leads to, through modules, attributes, dicts and lists; None if it leads nowhere."""
    found = start
    for name in filter(None, path.split(".")):
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, (list, tuple)):
            found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
        else:
            found = getattr(found, name, None)
    return found


def _changes_inputs(inputs: Mapping[str, Format], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a conversion would change any of these inputs; True where there are none to look at."""
    if not inputs or (not args and not kwargs):
        return bool(inputs)
    seen = {""}
    changes = []

    def look(path: str, given: Any) -> Any:
        format = _format_of_input(inputs, path, given)
        if format is not None:
            check_input(path, given, format)
            seen.add(path)
            changes.append(laid_out(given.detach(), format).stride() != given.stride())
        return given

    mapped((args, kwargs), lambda path, given: look(_named(path), given))
    if missing := sorted(inputs.keys() - seen):
        raise Refused(f"there is no input `{missing[0]}`")
    return any(changes)


def _convert_inputs(
    inputs: Mapping[str, Format],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    make: Callable[[Tensor, Format], Tensor],
) -> Inputs:
    if not inputs:
        return args, kwargs
    done: dict[int, Tensor] = {}  # one tensor that is given twice stays one

    def change(path: str, given: Any) -> Any:
        format = _format_of_input(inputs, _named(path), given)
        if format is None:
            return given
        if id(given) not in done:
            done[id(given)] = make(given, format)
        return done[id(given)]

    new: Inputs = mapped((args, kwargs), change)
    return new


def _named(path: str) -> str:
    """An input's path without which of `(args, kwargs)` it is in."""
    return path.partition(".")[2]


def _format_of_input(inputs: Mapping[str, Format], path: str, given: Any) -> Format | None:
    """What to bring an input into: what is said of it, else what is said of all, where it fits."""
    if not isinstance(given, Tensor):
        return None
    format = inputs.get(path)
    if format is None and (general := inputs.get("")) is not None and has_strides(given):
        is_image = given.dim() in IMAGES and given.is_floating_point()
        format = general if general == "contiguous" or is_image else None
    return format


def _made_outside(tensor: Tensor, format: Format) -> Tensor:
    """An input as it would be handed over: it takes gradients itself if the given one does."""
    new = laid_out(tensor.detach(), format)
    return tensor if new.stride() == tensor.stride() else new.requires_grad_(tensor.requires_grad)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _lay_like(tensor: Tensor, other: Tensor) -> None:
    if tensor.stride() != other.stride():
        tensor.data = torch.empty_like(other, dtype=tensor.dtype, device=tensor.device).copy_(tensor.data)


def _overlaps_itself(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
