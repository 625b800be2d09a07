"""What some objects of a program lead to, as far as its state goes: modules, tensors, optimizers, and containers."""

import dis
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from stridewise.recorder.tensors import tensors_in

_DEPTH = 4
"""How far into objects of the program's own modules, optimizers and tensors are looked for."""
_MOST_OBJECTS = 10_000
_CONTAINERS = (dict, list, set, deque)


class Reached:
    """The modules, optimizers and tensors that some objects lead to, and the containers that hold them."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.modules: dict[int, tuple[str, nn.Module]] = {}
        self.optimizers: list[Optimizer] = []
        self.tensors: dict[int, tuple[str, Tensor]] = {}
        self.containers: list[Any] = []
        """Dicts, lists, sets and deques of the program whose contents are a part of its state."""
        self.arrays: list[Any] = []
        """Those of numpy."""
        self.generators: list[Any] = []
        """Of random numbers, beside the global ones: torch's, numpy's and Python's."""
        self.cells: list[CellType] = []
        """Variables of functions around functions."""
        self.names: list[tuple[dict[str, Any], str]] = []
        """Global names that functions of the program bind."""
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
        elif _is_generator(thing):
            self.generators.append(thing)
        elif _is_array(thing):
            self.arrays.append(thing)
        elif depth and isinstance(thing, (*_CONTAINERS, tuple)):
            self._visit_container(name, thing, depth - 1)
        elif depth and (inside := _inside(thing)) is not None:
            if isinstance(thing, FunctionType):
                self._visit_function(thing)
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

        forward = getattr(type(module), "forward", None)
        if isinstance(forward, FunctionType) and not (forward.__module__ or "").startswith("torch."):
            self._visit_function(forward)
            scope = forward.__globals__
            for key in _global_names(forward.__code__):
                if (
                    isinstance(scope.get(key), _CONTAINERS)
                    or _is_generator(scope.get(key))
                    or _is_array(scope.get(key))
                ):
                    self._visit(key, scope[key], 1)

    def _visit_function(self, function: FunctionType) -> None:
        """What it binds anew that is not its own."""
        self.cells += function.__closure__ or ()
        self.names += [(function.__globals__, name) for name in _bound_names(function.__code__)]

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
        if isinstance(thing, _CONTAINERS):
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


@lru_cache
def _global_names(code: CodeType) -> frozenset[str]:
    inner = (_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*inner)


@lru_cache
def _bound_names(code: CodeType) -> frozenset[str]:
    """The global names that code binds, `global` statements having said so."""
    own = (step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))
    inner = (_bound_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(own).union(*inner)


def _is_array(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(thing) is numpy.ndarray


def _is_generator(thing: Any) -> bool:
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    return isinstance(thing, (torch.Generator, random.Random)) or (
        numpy is not None and isinstance(thing, (numpy.Generator, numpy.RandomState))
    )
