"""Tensors in a layout, as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise.checks.operators.case import Arrangement
from stridewise.checks.operators.grid import place
from stridewise.checks.operators.naming import permutation
from stridewise.layout import Layout, MemoryFormat, format_order

if TYPE_CHECKING:
    from torch import Tensor

Fill = Callable[[tuple[int, ...]], str]
"""An expression for a contiguous tensor of some sizes."""
_FORMATS: tuple[MemoryFormat, ...] = ("channels_last", "channels_last_3d")
_PLAIN = {"float32": ".0", "int64": ""}
"""What follows a number for torch to make it a tensor of this dtype."""
_MOST_VALUES = 64


class Kind(Struct, frozen=True):
    """What a tensor is besides its layout and values."""

    dtype: str
    device: str = "cpu"

    @property
    def words(self) -> str:
        """The arguments that say so, a comma in front of each."""
        dtype = "" if self.dtype in _PLAIN else f", dtype=torch.{self.dtype}"
        return dtype + ("" if self.device == "cpu" else f", device={self.device!r}")


def laid_out(sizes: tuple[int, ...], arrangement: Arrangement, fill: Fill) -> str:
    """An expression for a tensor of these sizes in an arrangement."""
    layout = place(arrangement, sizes).layout
    return next(text for text in _ways(sizes, arrangement, layout, fill) if _gives(text, layout))


def chain(sizes: tuple[int, ...], arrangement: Arrangement) -> tuple[tuple[int, ...], str]:
    """The sizes of the contiguous tensor that a tensor is a view of, and the calls that give the view."""
    ndim = len(sizes)
    order = arrangement.order or tuple(range(ndim))
    expanded = {dim % ndim for dim in arrangement.expanded}
    before, after = arrangement.before or (0,) * ndim, arrangement.after or (0,) * ndim
    steps = arrangement.steps or (1,) * ndim
    base = tuple(
        1 if dim in expanded else before[dim] + max(sizes[dim] - 1, 0) * steps[dim] + 1 + after[dim]
        for dim in range(ndim)
    )
    slices = [
        ":" if dim in expanded else _slice(before[dim], sizes[dim], steps[dim], after[dim]) for dim in range(ndim)
    ]
    base = tuple(0 if text == ":" and not size else own for text, size, own in zip(slices, sizes, base, strict=True))
    while slices and slices[-1] == ":":
        slices.pop()
    index = f"[{', '.join(slices)}]" if slices else ""
    expand = f".expand{sizes}" if expanded else ""
    return tuple(base[dim] for dim in order), f"{permutation(arrangement.order)}{index}{expand}"


def counted(kind: Kind) -> Fill:
    """Of numbers that are all different: 0, 1, 2 …"""

    def fill(sizes: tuple[int, ...]) -> str:
        count = prod(sizes)
        if kind.dtype == "bool":
            text = f"(torch.arange({count}{_device(kind)}) % 2).bool()"
        elif kind.dtype.startswith(("float8", "complex")):
            text = f"torch.arange({count}.0{_device(kind)}).to(torch.{kind.dtype})"
        else:
            text = f"torch.arange({count}{_PLAIN.get(kind.dtype, '')}{kind.words})"
        return text if len(sizes) == 1 else f"{text}.reshape({', '.join(map(str, sizes)) or '()'})"

    return fill


def drawn(kind: Kind) -> Fill:
    """Of random numbers."""
    return lambda sizes: f"torch.randn({', '.join(map(str, sizes)) or '()'}{kind.words})"


def zeros(kind: Kind) -> Fill:
    """Of zeros."""
    dtype = "" if kind.dtype == "float32" else f", dtype=torch.{kind.dtype}"
    return lambda sizes: f"torch.zeros({', '.join(map(str, sizes)) or '()'}{dtype}{_device(kind)})"


def literal(values: Tensor, sizes: tuple[int, ...], arrangement: Arrangement, kind: Kind) -> str | None:
    """An expression for a tensor of these values in an arrangement; None if there are too many to write down."""
    import torch

    base, calls = chain(sizes, arrangement)
    layout = place(arrangement, sizes).layout
    if arrangement.windows is not None or arrangement.odd_ones or arrangement.offset:
        base, calls = (_needed(layout),), f".as_strided({layout.sizes}, {layout.strides}, {layout.offset})"
    if prod(base) > _MOST_VALUES or values.is_complex() or kind.dtype.startswith("float8"):
        return None
    storage = torch.zeros(base, dtype=values.dtype)
    places = eval(f"places{calls}", {"places": torch.arange(prod(base)).reshape(base), "torch": torch})
    # Of indices that share an element the first comes last, and stays.
    storage.view(-1)[places.reshape(-1).flip(0)] = values.detach().cpu().reshape(-1).flip(0)
    written = re.sub(r"\b(nan|inf)\b", r"float('\1')", repr(storage.tolist()))
    return f"torch.tensor({written}{_dtype_of_literal(kind, storage)}){calls}"


# ----------------------------------------------------------------------------------------------------------------- ways


def _ways(sizes: tuple[int, ...], arrangement: Arrangement, layout: Layout, fill: Fill) -> Iterator[str]:
    """Expressions that may give the layout, those that a person would write first; the last one does."""
    ndim = len(sizes)
    is_plain = not any((arrangement.offset, arrangement.windows is not None, arrangement.odd_ones))
    for name in _FORMATS:
        if is_plain and arrangement == Arrangement(arrangement.name, order=format_order(name, ndim)) and ndim > 3:
            yield f"{fill(sizes)}.to(memory_format=torch.{name})"
    if is_plain:
        base, calls = chain(sizes, arrangement)
        yield f"{fill(base)}{calls}"
    if arrangement == Arrangement(arrangement.name, offset=arrangement.offset):
        whole = fill((prod(sizes) + arrangement.offset,))
        yield f"{whole}[{arrangement.offset}:].reshape({', '.join(map(str, sizes)) or '()'})"
    if ndim == 2 and arrangement.windows == 0 and sizes[0]:
        step = layout.strides[0]
        yield f"{fill(((sizes[0] - 1) * step + sizes[1],))}.unfold(0, {sizes[1]}, {step})"
    yield f"{fill((_needed(layout),))}.as_strided({layout.sizes}, {layout.strides}, {layout.offset})"


def _gives(text: str, layout: Layout) -> bool:
    import torch

    try:
        with torch.random.fork_rng(devices=[]):
            found = eval(text, {"torch": torch})
    except (RuntimeError, IndexError):
        return False
    pairs = zip(layout.sizes, found.stride(), layout.strides, strict=True)
    # Strides of size 1 count where the layout is about them: no allocation gives those.
    natural = place(Arrangement("x"), layout.sizes).layout.strides
    odd = any(s == 1 and want > prod(layout.sizes) for s, want in zip(layout.sizes, layout.strides, strict=True))
    same_strides = all((size == 1 and not odd) or has == want for size, has, want in pairs)
    if not prod(layout.sizes):
        same_strides = found.stride() == layout.strides or layout.strides == natural
    has_same_sizes = tuple(found.shape) == layout.sizes
    return has_same_sizes and same_strides and bool(found.storage_offset()) == bool(layout.offset)


def _slice(before: int, size: int, step: int, after: int) -> str:
    if not size:
        return f"{before}:{before}" if before or after else ":"
    behind = after if after >= step else 0
    text = f"{before or ''}:{-behind if behind else ''}"
    return f"{text}:{step}" if step > 1 else text


def _needed(layout: Layout) -> int:
    if not prod(layout.sizes):
        return layout.offset + 1
    return layout.offset + sum((s - 1) * t for s, t in zip(layout.sizes, layout.strides, strict=True)) + 1


def _device(kind: Kind) -> str:
    return "" if kind.device == "cpu" else f", device={kind.device!r}"


def _dtype_of_literal(kind: Kind, values: Tensor) -> str:
    import torch

    guessed = torch.tensor(values.tolist()).dtype
    dtype = "" if str(guessed) == f"torch.{kind.dtype}" else f", dtype=torch.{kind.dtype}"
    return dtype + _device(kind)
