"""Gives an exported program its inputs in the layouts that it was made for, or refuses others."""

from __future__ import annotations

from typing import Any

# This file is also the text of the guards that are written out: it stands by itself.


def guarded(program: Any, made_for: Any, mode: str = "convert", written: Any = ()) -> Any:
    """`program` for inputs in any layout: others are copied to the one that it was made for, or with "raise" refused.

    `made_for` has sizes and strides by input: the position of an argument or its name, then keys and positions inside.
    The inputs named in `written` get back what the program writes to them.
    """
    if mode not in ("convert", "raise"):
        raise ValueError(f"a mode is 'convert' or 'raise', not {mode!r}")

    def call(*args: Any, **kwargs: Any) -> Any:
        copies: list[Any] = []
        given = {**{str(at): value for at, value in enumerate(args)}, **kwargs}
        laid = {name: _laid(value, name, made_for, mode, copies) for name, value in given.items()}
        result = program(*[laid[str(at)] for at in range(len(args))], **{name: laid[name] for name in kwargs})
        for name, original, copy in copies:
            if name in written:
                original.copy_(copy)
        return result

    return call


def _laid(value: Any, name: str, made_for: Any, mode: str, copies: list[Any]) -> Any:
    """A value with the tensors in it laid out; `copies` collects those that were copied."""
    import torch

    if isinstance(value, dict):
        return type(value)((key, _laid(v, f"{name}.{key}", made_for, mode, copies)) for key, v in value.items())
    if isinstance(value, (list, tuple)):
        items = [_laid(entry, f"{name}.{at}", made_for, mode, copies) for at, entry in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not isinstance(value, torch.Tensor) or name not in made_for:
        return value
    strides = strides_for(tuple(value.shape), *made_for[name])
    if value.stride() == strides or not value.numel():
        return value
    if mode == "raise" or any(size > 1 and not stride for size, stride in zip(value.shape, strides, strict=True)):
        raise ValueError(
            f"input {name}: sizes {tuple(value.shape)} with strides {value.stride()}; the program was made for strides "
            f"{strides}"
        )
    copy = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
    copies.append((name, value, copy))
    return copy


def strides_for(sizes: Any, made_sizes: Any, made_strides: Any) -> tuple[int, ...]:
    """The strides that the program was made for; for other sizes dense ones, dimensions in the same order."""
    if sizes == tuple(made_sizes) or len(sizes) != len(made_sizes):
        return tuple(made_strides)
    strides, step = [0] * len(sizes), 1
    for dim in sorted(range(len(sizes)), key=lambda dim: (made_strides[dim], -dim)):
        strides[dim] = step
        step *= max(1, sizes[dim])
    return tuple(strides)
