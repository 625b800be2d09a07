"""What running a program's step may change, kept so that it can be brought back. Nothing else touches the program."""

import gc
import random
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from stridewise.recorder.tensors import tensors_in

_Kind = TypeVar("_Kind")
_DEPTH = 4
"""How far into objects of the program's own modules, optimizers and tensors are looked for."""
_MOST_OBJECTS = 10_000


class Reached:
    """The modules, optimizers and tensors that some objects lead to, and the containers that hold them."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.modules: dict[int, tuple[str, nn.Module]] = {}
        self.optimizers: list[Optimizer] = []
        self.tensors: dict[int, tuple[str, Tensor]] = {}
        self.containers: list[Any] = []
        """Dicts and lists of the program whose contents are a part of its state."""
        self.registers: list[dict[str, Any]] = []
        """The parameters and buffers of modules, by name."""
        self.moments: list[Any] = []
        """What optimizers keep."""
        self._seen: dict[int, Any] = {}
        for name, root in roots:
            self._visit(name, root, _DEPTH)

    def _visit(self, name: str, thing: Any, depth: int) -> None:
        if id(thing) in self._seen or len(self._seen) > _MOST_OBJECTS:
            return
        if isinstance(thing, (str, bytes, int, float, bool, type, ModuleType, type(None))):
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            self.tensors[id(thing)] = name, thing
        elif isinstance(thing, nn.Module):
            for path, module in thing.named_modules():
                self._visit_module(".".join(filter(None, (name, path))), module, depth)
        elif isinstance(thing, Optimizer):
            self._visit_optimizer(name, thing)
        elif depth and isinstance(thing, (dict, list, tuple)):
            self._visit_container(name, thing, depth - 1)
        elif depth and (inside := _inside(thing)) is not None:
            for key, value in inside:
                self._visit(f"{name}.{key}" if name else key, value, depth - 1)
            if type(thing).__module__.startswith("torch.") or not isinstance(
                thing, (FunctionType, MethodType, partial)
            ):
                self._keep_attributes(thing)

    def _visit_module(self, name: str, module: nn.Module, depth: int) -> None:
        if id(module) in self.modules:
            return
        self.modules[id(module)] = name, module
        self._seen[id(module)] = module
        if not any(
            tensor is not None and is_lazy(tensor) for tensor in module._parameters.values()
        ):  # what its first call makes of it has to stay
            self.registers += [module._parameters, module._buffers]
            # Hooks too: a module that puts hooks on others remembers in an attribute that it did.
            self.containers += [vars(module), *(held for held in vars(module).values() if type(held) is OrderedDict)]
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
            for key, tensor in tensors.items():
                if tensor is not None:
                    self.tensors.setdefault(
                        id(tensor), (f"{kind} `{name}.{key}`" if name else f"{kind} `{key}`", tensor)
                    )
        for key, value in vars(module).items():
            if not key.startswith("_") or isinstance(value, Tensor):
                self._visit(f"{name}.{key}" if name else key, value, min(depth, 2))

    def _visit_optimizer(self, name: str, optimizer: Optimizer) -> None:
        self.optimizers.append(optimizer)
        self.containers.append(vars(optimizer))
        self.moments += [optimizer.state, optimizer.param_groups, *optimizer.param_groups]
        for number, state in enumerate(optimizer.state.values()):
            self.moments.append(state)
            for path, tensor in tensors_in(state):
                self.tensors.setdefault(id(tensor), (f"optimizer state `{number}.{path}`", tensor))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.tensors.setdefault(id(parameter), (f"{name} parameter", parameter))

    def _visit_container(self, name: str, thing: Any, depth: int) -> None:
        if isinstance(thing, (dict, list)):
            self.containers.append(thing)
        entries = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for key, value in list(entries):
            self._visit(f"{name}[{key!r}]" if name else str(key), value, depth)

    def _keep_attributes(self, thing: Any) -> None:
        attributes = getattr(thing, "__dict__", None)
        if type(attributes) is dict:
            self.containers.append(attributes)


def _inside(thing: Any) -> list[tuple[str, Any]] | None:
    """What a function or an object of the program's own can reach by name."""
    if isinstance(thing, partial):
        return [("", thing.func), ("", thing.args), ("", thing.keywords)]
    if isinstance(thing, MethodType):
        return [("", thing.__self__), ("", thing.__func__)]
    if isinstance(thing, FunctionType):
        return list(_names_of(thing))
    kind = type(thing)
    stateful = kind.__module__.startswith(("torch.optim", "torch.amp"))
    if stateful or not kind.__module__.startswith(("torch", "numpy", "builtins", "collections", "threading")):
        attributes = getattr(thing, "__dict__", None)
        return list(attributes.items()) if type(attributes) is dict else None
    return None


def _names_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet bound
            continue
    scope = function.__globals__
    if not str(scope.get("__name__", "")).startswith("torch"):
        yield from ((name, scope[name]) for name in _global_names(function.__code__) if name in scope)
    if function.__defaults__ or function.__kwdefaults__:
        yield "", [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _global_names(code: CodeType) -> set[str]:
    inner = (_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


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
            id(tensor): (name, tensor, tensor.detach().clone())
            for name, tensor in tensors
            if parameters or not isinstance(tensor, nn.Parameter)
        }
        self._gradients = [
            (tensor, tensor.grad, None if tensor.grad is None else tensor.grad.detach().clone())
            for _, tensor in tensors
            if tensor.is_leaf and tensor.requires_grad
        ]
        self._versions = {id(tensor): version_of(tensor) for _, tensor in tensors}
        self._moments = [(thing, _contents(thing)) for thing in reached.moments]
        self._contents = [(thing, _contents(thing)) for thing in (reached.containers if containers else ())]
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
        for register, tensors in self._registers:
            _refill(register, {**register, **tensors} if self._keeps_new else tensors)
        for module, training in self._modes:
            module.training = training
        for tensor, alias, place in self._aliases:
            if places and _place(tensor) != place:
                tensor.data = alias
        for _, tensor, value in self._values.values():
            tensor.data.copy_(value)
        for leaf, gradient, kept in self._gradients:
            if gradient is not None and kept is not None:
                gradient.data.copy_(kept)
            leaf.grad = gradient


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


def _is_equal(tensor: Tensor, value: Tensor) -> bool:
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        return False
    if value.is_floating_point() or value.is_complex():
        return torch.allclose(tensor.detach(), value, rtol=0, atol=0, equal_nan=True)
    return torch.equal(tensor.detach(), value)


def _contents(thing: Any) -> Any:
    return dict(thing) if isinstance(thing, dict) else list(thing)


def _refill(thing: Any, contents: Any) -> None:
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
