"""What reading from a loader would change, and the way back."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST_OBJECTS = 200
_MOST_ENTRIES = 100_000
_CONTAINERS = (dict, list, set, deque)


@contextmanager
def kept(*roots: Any) -> Iterator[None]:
    """Put random states, and the attributes of some objects, back to what they are now.

    Of the objects: their attributes, what lists, dicts and sets there hold, generators, and the same of the data sets
    and samplers that they wrap. What iterators and open files have been read to can't be put back.
    """
    objects = _reached(roots)
    attributes = [(vars(each), dict(vars(each))) for each in objects]
    values = [value for _, contents in attributes for value in contents.values()]
    containers = [(value, copy.copy(value)) for value in _containers(values) if len(value) <= _MOST_ENTRIES]
    restores = [_global_states()] + [_generator_state(value) for value in values]
    try:
        yield
    finally:
        for namespace, contents in attributes:
            _refill(namespace, contents)
        for container, contents in containers:
            _refill(container, contents)
        for restore in restores:
            restore()


def _containers(values: list[Any]) -> Iterator[Any]:
    """Containers among some values, and those directly in them."""
    for value in values:
        if isinstance(value, _CONTAINERS):
            yield value
            inside = value.values() if isinstance(value, dict) else value
            yield from [each for each in itertools.islice(inside, _MOST_OBJECTS) if isinstance(each, _CONTAINERS)]


def _reached(roots: tuple[Any, ...]) -> list[Any]:
    """The objects with attributes that others lead to, outermost first; not modules and not classes."""
    found: list[Any] = []
    waiting = deque(roots)
    seen: set[int] = set()
    while waiting and len(found) < _MOST_OBJECTS:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, (tuple, list)):
            waiting.extend(each[:_MOST_OBJECTS])
        elif isinstance(each, dict):
            waiting.extend(list(each.values())[:_MOST_OBJECTS])
        elif _has_state(each):
            found.append(each)
            waiting.extend(vars(each).values())
    return found


def _has_state(thing: Any) -> bool:
    """Whether it is a part of a data pipeline by its looks: something to index, iterate or call."""
    import torch
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    if isinstance(thing, (type, torch.Tensor, _BaseDataLoaderIter)):  # an iterator that runs is not touched
        return False
    if not isinstance(getattr(thing, "__dict__", None), dict):
        return False
    return any(hasattr(type(thing), name) for name in ("__getitem__", "__iter__", "__call__"))


def _global_states() -> Any:
    import torch

    numpy = getattr(sys.modules.get("numpy"), "random", None)
    cpu, python = torch.get_rng_state(), random.getstate()
    legacy = numpy.get_state() if numpy is not None else None
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore() -> None:
        torch.set_rng_state(cpu)
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(legacy)
        if devices:
            torch.cuda.set_rng_state_all(devices)

    return restore


def _generator_state(value: Any) -> Any:
    """What puts a generator back; of anything else, nothing to do."""
    import numpy as np
    import torch

    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        python = value.getstate()
        return lambda: value.setstate(python)
    if isinstance(value, np.random.Generator):
        bits = copy.deepcopy(value.bit_generator.state)
        return lambda: setattr(value.bit_generator, "state", bits)
    if isinstance(value, np.random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    return lambda: None


def _refill(container: Any, contents: Any) -> None:
    """Make it hold what it held; written to only if it holds something else."""
    if len(container) == len(contents) and _is_same(container, contents):
        return
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(contents)
    else:
        container.extend(contents)


def _is_same(now: Any, then: Any) -> bool:
    if isinstance(now, dict):
        return all(key in now and now[key] is value for key, value in then.items())
    if isinstance(now, set):
        return bool(now == then)
    return all(a is b for a, b in zip(now, then, strict=True))
