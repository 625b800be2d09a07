"""Gives an exported program its inputs in the layouts that it was made for, or refuses others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# This file is also the text of the guards that are written out: it stands by itself.


def guarded(program: Any, made_for: Any, mode: str = "convert", written: Any = (), parameters: Any = ()) -> Any:
    """`program` for inputs in any layout: others are copied to the one that it was made for, or with "raise" refused.

    `made_for` has sizes and strides by input: the position of an argument or its name, then keys and positions inside.
    `parameters` are the names of the positions, where there are some. The inputs named in `written` get back what the
    program writes to them; a view of an input that it returns shares memory with the copy, not with the argument.
    A ValueError names an input that can't be laid out, or that `made_for` does not have.
    """
    if mode not in ("convert", "raise"):
        raise ValueError(f"a mode is 'convert' or 'raise', not {mode!r}")
    known = {path.partition(".")[0] for path in made_for}

    def call(*args: Any, **kwargs: Any) -> Any:
        copies: list[Any] = []

        def lay(name: str, value: Any) -> Any:
            path = argument(name, known, parameters)
            label = f"{path} ({parameters[int(path)]})" if path.isdigit() and int(path) < len(parameters) else path
            return laid(value, path, label, made_for, mode, copies)

        new = [lay(str(at), value) for at, value in enumerate(args)]
        result = program(*new, **{name: lay(name, value) for name, value in kwargs.items()})
        for path, original, copy in copies:
            if path in written:
                original.copy_(copy)
        return result

    return call


def argument(name: str, known: Any, parameters: Any) -> str:
    """What `known` calls an argument, that may be given by its position or by its name."""
    other = name
    if name.isdigit():
        other = parameters[int(name)] if int(name) < len(parameters) else name
    elif name in parameters:
        other = str(parameters.index(name))
    return other if name not in known and other in known else name


def laid(value: Any, path: str, label: str, made_for: Any, mode: str, copies: list[Any]) -> Any:
    """A value with the tensors in it laid out; `copies` collects those that were copied."""
    import torch
    from torch.utils import _pytree

    if isinstance(value, torch.Tensor):
        return laid_tensor(value, path, label, made_for, mode, copies)
    entries, tree = entries_of(value)
    new = [laid(entry, f"{path}.{key}", f"{label}.{key}", made_for, mode, copies) for key, entry in entries]
    if all(one is entry for one, (_, entry) in zip(new, entries, strict=True)):
        return value
    return _pytree.tree_unflatten(new, tree)


def entries_of(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """The entries of a container that torch knows, each with its key, field or position, and its tree; else none."""
    from torch.utils import _pytree

    def is_entry(node: Any) -> bool:
        return node is not value

    entries, tree = _pytree.tree_flatten(value, is_leaf=is_entry)
    if len(entries) == 1 and entries[0] is value:
        return [], tree
    keys: list[Any] = list(range(len(entries)))
    try:
        paths = [path[0] for path, _ in _pytree.tree_flatten_with_path(value, is_leaf=is_entry)[0]]
        keys = [next(getattr(key, of) for of in ("idx", "key", "name") if hasattr(key, of)) for key in paths]
    except (ValueError, StopIteration):  # it was registered without keys
        if isinstance(value, Mapping) and [id(entry) for entry in value.values()] == [id(entry) for entry in entries]:
            keys = list(value)
    return list(zip(keys, entries, strict=True)), tree


def laid_tensor(value: Any, path: str, label: str, made_for: Any, mode: str, copies: list[Any]) -> Any:
    """A tensor in the strides that the program was made for; strides that reach no element are set without a copy."""
    import torch

    if value.layout is not torch.strided or value.is_nested or not value.dim():
        return value
    sizes = tuple(value.shape)
    if path not in made_for:
        raise ValueError(
            f"input {label}: the guard does not know it; it knows {', '.join(list(made_for)[:8]) or 'none'}"
        )
    if len(made_for[path][0]) != len(sizes):
        raise ValueError(
            f"input {label}: {len(sizes)} dimensions, of sizes {sizes}; the program was made for "
            f"{len(made_for[path][0])}, of sizes {tuple(made_for[path][0])}"
        )
    strides = strides_for(sizes, *made_for[path])
    if value.stride() == strides:
        return value
    if not value.numel() or all(size == 1 or a == b for size, a, b in zip(sizes, value.stride(), strides, strict=True)):
        return value.as_strided(sizes, strides)
    if mode == "raise" or shares_elements(sizes, strides):
        raise ValueError(
            f"input {label}: sizes {sizes} with strides {value.stride()}; the program was made for strides {strides}"
        )
    copy = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).copy_(value)
    copies.append((path, value, copy))
    return copy


def strides_for(sizes: Any, made_sizes: Any, made_strides: Any) -> tuple[int, ...]:
    """The strides that the program was made for, for sizes that may be others than the example's.

    From the innermost dimension out, one that lay densely on those inside of it does so again; any other stride is a
    constant of the program, as that of rows with a gap between them, and stays.
    """
    if len(sizes) != len(made_sizes):
        return tuple(made_strides)
    strides, made_step, step = list(made_strides), 1, 1
    for dim in sorted(range(len(sizes)), key=lambda dim: (made_strides[dim], -dim)):
        if sizes[dim] != made_sizes[dim] == 1 or made_strides[dim] == made_step:
            strides[dim] = step
        if made_sizes[dim] != 1 and made_strides[dim]:
            made_step = made_strides[dim] * made_sizes[dim]
        if sizes[dim] != 1 and strides[dim]:
            step = strides[dim] * max(1, sizes[dim])
    return tuple(made_strides) if tuple(sizes) == tuple(made_sizes) else tuple(strides)


def shares_elements(sizes: Any, strides: Any) -> bool:
    """Whether a dimension may step onto elements of those inside of it: what is copied there overwrites itself."""
    last = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride <= last:
            return True
        last += (size - 1) * stride
    return False
