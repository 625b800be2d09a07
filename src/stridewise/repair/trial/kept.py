"""What the program's own lists, dicts, attributes and variables hold, so that what a step puts there can be told."""

import contextlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from stridewise.recorder.reach import Reached
from stridewise.repair.trial.held import Held

_DEPTH = 4
_SMALL = (str, bytes, int, float, complex, type, type(None))
_PLAIN = (dict, OrderedDict, list, tuple, set)
_MOST = 100_000


def held_by_containers(reached: Reached) -> Iterator[tuple[str, Tensor]]:
    """The tensors that the program's containers hold by now and that `reached` does not know, by name.

    Some were too deep for it, so a step has put there only what was not held before it.
    """
    containers = [*reached.registers, *reached.containers, *reached.moments]
    owners = _owners(reached)
    known = {id(container): "walked by itself" for container in containers}
    known |= {id(module): name for name, module in reached.modules.values()}
    known |= {id(optimizer): "" for optimizer in reached.optimizers}
    held = Held(known, most=_MOST)
    for container in containers:
        if isinstance(container, set):  # its order is that of addresses
            continue
        entries = dict.items(container) if isinstance(container, dict) else enumerate(container)
        for key, entry in list(entries):
            _add(held, reached, _name(owners.get(id(container)), container, key), entry)
    for cell in reached.cells:
        with contextlib.suppress(ValueError):  # not yet bound
            _add(held, reached, "a variable of an enclosing function", cell.cell_contents)
    for scope, name in reached.names:
        _add(held, reached, f"global `{name}`", scope.get(name))
    for name, tensor in held.tensors.items():
        if id(tensor) not in reached.tensors:
            yield name, tensor


def _add(held: Held, reached: Reached, name: str, entry: Any) -> None:
    kind = type(entry)
    if id(entry) in reached.tensors or issubclass(kind, _SMALL) or (kind in _PLAIN and not entry):
        return
    held.add(name, entry, depth=_DEPTH)


def _owners(reached: Reached) -> dict[int, str]:
    found = {}
    for name, module in reached.modules.values():
        for attributes in (vars(module), module._parameters, module._buffers):
            found[id(attributes)] = f"{name}." if name else ""
    return found


def _name(owner: str | None, container: Any, key: Any) -> str:
    if owner is not None:
        return f"`{owner}{key}`"
    if isinstance(container, (list, deque)):
        return f"entry {key} of a {type(container).__name__} that the program keeps"
    shown = key if isinstance(key, (str, int)) else f"<{type(key).__name__}>"
    return f"`{shown}` that the program keeps"
