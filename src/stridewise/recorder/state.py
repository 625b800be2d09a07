"""What running a program's step may change, kept so that it can be brought back. Nothing else touches the program."""

import copy
import gc
import random
import sys
from collections.abc import Iterable, Iterator
from types import CellType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from stridewise.recorder.reach import Reached

_Kind = TypeVar("_Kind")
_UNBOUND = object()


class State:
    """The state of a program before a step, and the way back to it.

    Kept are the values of tensors, what containers hold, gradients, and the states of random generators. Of tensors
    that the first step leaves alone no copy stays: `settle` says so after it. Parameters are only copied if
    `parameters` is set. Without `containers`, what Python code keeps in attributes, lists and dicts stays as it
    becomes: a first call may set up things that can't be undone in part, such as hooks and caches.
    """

    def __init__(self, reached: Reached, *, parameters: bool, containers: bool = True) -> None:
        self.reached = reached
        tensors = [(name, tensor) for name, tensor in reached.tensors.values() if has_values(tensor)]
        self._aliases = [(tensor, tensor.detach(), _place(tensor)) for _, tensor in tensors if tensor.is_leaf]
        self._values = {
            id(tensor): (name, tensor, value)
            for name, tensor in tensors
            if (parameters or not isinstance(tensor, nn.Parameter)) and (value := _copied(tensor)) is not None
        }
        self._gradients = [
            (tensor, tensor.grad, None if tensor.grad is None else tensor.grad.detach().clone())
            for _, tensor in tensors
            if tensor.is_leaf and tensor.requires_grad
        ]
        self._versions = {id(tensor): version_of(tensor) for _, tensor in tensors}
        self._moments = [(thing, _contents(thing)) for thing in reached.moments]
        self._contents = [(thing, _contents(thing)) for thing in (reached.containers if containers else ())]
        self._arrays = [(array, array.copy()) for array in reached.arrays if containers and array.dtype != object]
        self._generators = [(generator, _generator_state(generator)) for generator in reached.generators]
        self._cells = [(cell, _content(cell)) for cell in (reached.cells if containers else ())]
        names = reached.names if containers else ()
        self._names = [(scope, name, scope.get(name, _UNBOUND)) for scope, name in names]
        self._registers = [(register, dict(register)) for register in reached.registers]
        self._keeps_new = not containers
        self._modes = [(module, module.training) for _, module in reached.modules.values()]
        self._random = _RandomStates()

    @property
    def changing(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that steps change, by name; after `settle`."""
        return ((name, tensor) for name, tensor, _ in self._values.values())

    @property
    def leaves(self) -> Iterator[Tensor]:
        """The tensors that have gradients."""
        return (tensor for tensor, _, _ in self._gradients)

    def settle(self) -> None:
        """A step has been run: keep only the values that it changed, or wrote once more as they were."""
        self._values = {
            key: (name, tensor, value)
            for key, (name, tensor, value) in self._values.items()
            if version_of(tensor) != self._versions[key] or not _is_equal(tensor, value)
        }

    def restore(self, *, places: bool = True, moments: bool = True) -> None:
        """Bring everything back.

        Without `places`, values only where tensors lie elsewhere in memory by now; without `moments`, optimizers go on.
        """
        self._random.restore()
        for thing, contents in self._moments if moments else ():
            _refill(thing, contents)
        for thing, contents in self._contents:
            _refill(thing, contents)
        for array, values in self._arrays:
            array[...] = values
        for generator, state in self._generators:
            _set_generator(generator, state)
        for cell, content in self._cells:
            if content is not _UNBOUND and _content(cell) is not content:
                cell.cell_contents = content
        for scope, name, bound in self._names:
            if bound is _UNBOUND:
                scope.pop(name, None)
            else:
                scope[name] = bound
        for register, tensors in self._registers:
            _refill(register, {**register, **tensors} if self._keeps_new else tensors)
        for module, training in self._modes:
            vars(module)["training"] = training
        for tensor, alias, place in self._aliases:
            if places and _place(tensor) != place:
                tensor.data = alias
        for _, tensor, value in self._values.values():
            if not _is_equal(tensor, value):
                _write(tensor, value)
        for leaf, gradient, kept in self._gradients:
            if gradient is not None and kept is not None:
                gradient.data.copy_(kept)
            leaf.grad = gradient


def _write(tensor: Tensor, value: Tensor) -> None:
    """Write values back; once where a dimension is expanded, which can't be written as a whole."""
    for dimension, stride in enumerate(tensor.stride() if tensor.layout is torch.strided else ()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor, value = tensor.narrow(dimension, 0, 1), value.narrow(dimension, 0, 1)
    tensor.data.copy_(value)


class _RandomStates:
    def __init__(self) -> None:
        self._devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        self._cpu = torch.get_rng_state()
        self._cuda = [torch.cuda.get_rng_state(device) for device in self._devices]
        self._python = random.getstate()
        self._numpy = getattr(sys.modules.get("numpy"), "random", None)
        self._numpy_state = self._numpy.get_state() if self._numpy is not None else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        for device, state in zip(self._devices, self._cuda, strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        if self._numpy is not None:
            self._numpy.set_state(self._numpy_state)


def has_values(tensor: Tensor) -> bool:
    """Whether it has memory of its own whose values can be copied."""
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested and not is_lazy(tensor)


def version_of(tensor: Tensor) -> int:
    """How often a tensor's memory was written through any of its views, as far as torch counts that."""
    return -1 if tensor.is_inference() else tensor._version


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _copied(tensor: Tensor) -> Tensor | None:
    """A copy of its values; of a parameter of a device on the host, for it may fill half of the device.

    None for dtypes that have no kernels.
    """
    value = tensor.detach()
    try:
        return value.cpu() if value.is_cuda and isinstance(tensor, nn.Parameter) else value.clone()
    except NotImplementedError:
        return None


def _is_equal(tensor: Tensor, value: Tensor) -> bool:
    value = value.to(tensor.device)
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        return False
    if value.is_floating_point() or value.is_complex():
        return torch.allclose(tensor.detach(), value, rtol=0, atol=0, equal_nan=True)
    return torch.equal(tensor.detach(), value)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet bound
        return _UNBOUND


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return (
        copy.deepcopy(generator.bit_generator.state) if hasattr(generator, "bit_generator") else generator.get_state()
    )


def _set_generator(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _contents(thing: Any) -> Any:
    return dict(thing) if isinstance(thing, dict) else set(thing) if isinstance(thing, set) else list(thing)


def _refill(thing: Any, contents: Any) -> None:
    if isinstance(thing, set):
        if thing != contents:
            thing.clear()
            thing.update(contents)
        return
    same = len(thing) == len(contents) and (
        all(key in thing and thing[key] is value for key, value in contents.items())
        if isinstance(contents, dict)
        else all(now is then for now, then in zip(thing, contents, strict=True))
    )
    if same:
        return
    thing.clear()
    if isinstance(contents, dict):
        thing.update(contents)
    else:
        thing.extend(contents)


def instances(kind: type[_Kind]) -> list[_Kind]:
    """The objects of a class and its subclasses that are alive.

    By who refers to the class: a look at all objects there are can hold tuples that another thread is still filling,
    which fails there.
    """
    classes, found = [kind], []
    for known in classes:
        classes += [below for below in known.__subclasses__() if below not in classes]
        found += [thing for thing in gc.get_referrers(known) if type(thing) is known]
    return found


def keep_state(roots: Iterable[tuple[str, Any]], *, parameters: bool = True, containers: bool = True) -> State:
    """Keep the state of everything that some objects lead to."""
    return State(Reached(roots), parameters=parameters, containers=containers)
