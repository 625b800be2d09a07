"""What a value of a program holds: tensors, arrays, numbers and text by name. No code of the program runs."""

import array
import enum
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_DEPTH = 8
_MOST = 10_000
"""How many values are looked at."""
_EXACT = (Fraction, range, slice, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Small and unchanging: their text says all."""
_CLOSED = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, nn.Module, Optimizer)
_HEAP = 1 << 9
"""The flag of a class that is no static one of an extension (CPython, Py_TPFLAGS_HEAPTYPE)."""

Number = bool | int | float | complex


class Held:
    """Collects what values hold. `known` are objects that aren't looked into, by id, with what they are called."""

    def __init__(self, known: Mapping[int, str] | None = None, most: int = _MOST) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        """Of numpy, and not of its subclasses."""
        self.numbers: dict[str, Number] = {}
        self.exact: dict[str, str | bytes] = {}
        """Text, bytes and whatever else is equal or is not."""
        self.kinds: dict[str, str] = {}
        """What stands where: "list of 3", "generator"."""
        self.unseen: dict[str, str] = {}
        """What can't be compared: its class."""
        self._known = known or {}
        self._most = most
        self._visited: dict[int, tuple[str, Any]] = {}
        self._names: set[str] = set()

    def add(self, name: str, value: Any, path: str = "", depth: int = _DEPTH) -> None:
        """Look at a value, which is called `name`, and at what it holds: "output", "output 0", "output 0.mean"."""
        called = f"{name} {path}".rstrip()
        if len(self._names) >= self._most:
            self.unseen[name] = f"more than {self._most:,} values"
            return
        called = self._unique(called)
        if self._is_leaf(called, value):
            return
        entries = _entries(value)
        kind = type(value).__name__
        if entries is None or (depth == 0 and entries):
            self.kinds[called] = self.unseen[called] = kind
            return
        # Not so for tuples: which constant ones are one object is the compiler's affair.
        if not issubclass(type(value), tuple):
            before = self._visited.setdefault(id(value), (called, value))[0]
            if before != called:
                self.kinds[called] = f"the same {kind} as {before}"
                return
        self.kinds[called] = f"{kind} of {len(entries)}{_kinds_of_keys(value)}"
        if _hides_state(type(value)):
            self.unseen[called] = kind
        for key, entry in entries:
            self.add(name, entry, _joined(path, key), depth - 1)

    def _is_leaf(self, name: str, value: Any) -> bool:
        kind = type(value)
        if issubclass(kind, Tensor):
            self.tensors[name] = value
        elif issubclass(kind, (np.ndarray, np.generic)):
            self._add_array(name, value)
        elif value is None:
            self.kinds[name] = "None"
        elif issubclass(kind, enum.Enum):
            self.exact[name] = f"{kind.__name__}.{dict(_attributes(value)).get('_name_')}"
        elif (number := _number(value)) is not None:
            self.numbers[name] = number
        elif (exact := _exact(value)) is not None:
            self.kinds[name] = kind.__name__
            self.exact[name] = exact
        elif id(value) in self._known:
            self.kinds[name] = self._known[id(value)]
        elif issubclass(kind, (set, frozenset)):
            self._add_set(name, value)
        else:
            return False
        return True

    def _add_array(self, name: str, value: Any) -> None:
        # `asarray` of a subclass would run its code where `view` of numpy's own does not.
        found = np.ndarray.view(value, np.ndarray) if issubclass(type(value), np.ndarray) else np.asarray(value)
        self.kinds[name] = f"numpy {found.dtype} {found.shape}"
        if found.dtype.kind in "biufc":
            self.arrays[name] = found
        elif found.dtype.hasobject:
            self.add(name, found.tolist(), "as a list")
        else:
            self.exact[name] = found.tobytes()

    def _add_set(self, name: str, value: Any) -> None:
        entries = list((set if issubclass(type(value), set) else frozenset).__iter__(value))
        self.kinds[name] = f"{type(value).__name__} of {len(entries)}"
        texts = [_text(entry) for entry in entries]
        if None in texts:  # their order is that of their addresses
            self.unseen[name] = type(value).__name__
        self.exact[name] = ", ".join(sorted(text for text in texts if text is not None))

    def _unique(self, name: str) -> str:
        found = name
        for number in itertools.count(2):
            if found not in self._names:
                break
            found = f"{name} ({number})"
        self._names.add(found)
        return found


def _number(value: Any) -> Number | None:
    """A number without what a subclass makes of it."""
    if value is True or value is False:
        return bool(value)
    if issubclass(type(value), int):
        return int.__index__(value)
    if issubclass(type(value), float):
        return float.__float__(value)
    return complex.__pos__(value) if issubclass(type(value), complex) else None


def _exact(value: Any) -> str | bytes | None:
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, bytes):
        return bytes.__getitem__(value, slice(None))
    if issubclass(kind, bytearray):
        return bytes(bytearray.__getitem__(value, slice(None)))
    if kind in (array.array, memoryview):
        found: bytes = value.tobytes()
        return found
    if kind is type:
        return f"{type.__dict__['__module__'].__get__(value)}.{type.__dict__['__qualname__'].__get__(value)}"
    return repr(value) if kind in _EXACT else None


def _text(value: Any) -> str | None:
    """A short text for what may be a key of a dict or an entry of a set; None if its own code would have to say it."""
    kind = type(value)
    if kind in (str, bytes, bool, int, float, complex, type(None), *_EXACT):
        return f"int of {value.bit_length()} bits" if kind is int and value.bit_length() > 1000 else repr(value)
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{dict(_attributes(value)).get('_name_')}"
    if kind is tuple:
        texts = [_text(entry) for entry in value]
        return None if None in texts else f"({', '.join(map(str, texts))})"
    return None


def _entries(value: Any) -> list[tuple[str, Any]] | None:
    """What a container or an object holds, with the paths there; None where that can't be known."""
    kind = type(value)
    if issubclass(kind, dict):
        inside = [(_key(key), entry) for key, entry in itertools.islice(dict.items(value), _MOST)]
    elif issubclass(kind, (list, tuple, deque)):
        base: Any = next(base for base in (list, tuple, deque) if issubclass(kind, base))
        inside = [(f"[{at}]", entry) for at, entry in enumerate(itertools.islice(base.__iter__(value), _MOST))]
    elif issubclass(kind, (type, *_CLOSED)) or (kind.__flags__ & _HEAP == 0 and kind is not object):
        return None
    else:
        return list(_attributes(value))
    if kind.__module__ != "builtins":  # a dataclass that is a dict holds everything twice
        inside += [(key, entry) for key, entry in _attributes(value) if all(entry is not old for _, old in inside)]
    return inside


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that an object stores, in `__dict__` and in slots."""
    for kind in type.__dict__["__mro__"].__get__(type(value)):
        names = type.__dict__["__dict__"].__get__(kind)
        stored = names.get("__dict__")
        if isinstance(stored, GetSetDescriptorType):
            yield from list(dict.items(stored.__get__(value)))
        if "__slots__" in names:
            for name, slot in names.items():
                if isinstance(slot, MemberDescriptorType):
                    try:
                        yield name, slot.__get__(value)
                    except AttributeError:  # not set
                        continue


def _hides_state(kind: type) -> bool:
    """Whether a class builds on one that may keep state where Python code does not see it."""
    open_bases = (dict, OrderedDict, list, tuple, deque, object)  # of no dict is the order of its keys compared
    bases: Iterable[type] = type.__dict__["__mro__"].__get__(kind)
    return any(base.__flags__ & _HEAP == 0 and base not in open_bases for base in bases)


def _key(key: Any) -> str:
    if issubclass(type(key), str) and type(key) is str:
        return key
    return _text(key) or f"<{type(key).__name__}>"


def _kinds_of_keys(value: Any) -> str:
    """Whether keys are text or numbers does not show in names."""
    if not issubclass(type(value), dict):
        return ""
    kinds = sorted({type(key).__name__ for key in dict.keys(value)} - {"str"})
    return f" with keys of {', '.join(kinds)}" if kinds else ""


def _joined(path: str, key: str) -> str:
    if key.startswith("["):
        return f"{path}{key}" if path else key.strip("[]")
    return f"{path}.{key}" if path else key
