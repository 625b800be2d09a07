"""Random tensors, each with the layout that the algebra says it has, and random operations on both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from stridewise.layout import (
    Layout,
    LayoutError,
    as_strided,
    broadcast_to,
    diagonal,
    expand,
    index,
    movedim,
    mT,
    narrow,
    permute,
    select,
    slice_dim,
    squeeze,
    swapaxes,
    t,
    transpose,
    unflatten,
    unfold,
    unsqueeze,
    view,
    view_as_complex,
    view_as_real,
    view_dtype,
)

STORAGE = 4096
MAX_NDIM = 6
MEMORY_FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
# Every torch operator turns down an argument with one of these; TypeError is left out, it would be our mistake.
REFUSALS = (RuntimeError, IndexError, ValueError)


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


@dataclass(frozen=True)
class Op:
    """One operation, on tensors and on layouts, and the arguments to try for a layout."""

    on_tensor: Callable[..., torch.Tensor]
    on_layout: Callable[..., Layout]
    arguments: Callable[[Layout], st.SearchStrategy[tuple[Any, ...]]]


def dims(layout: Layout) -> st.SearchStrategy[int]:
    # One too far now and then: both sides must refuse it.
    return st.integers(-layout.ndim, layout.ndim)


def sizes_like(layout: Layout) -> st.SearchStrategy[tuple[int, ...]]:
    targets = st.tuples(*(st.sampled_from((-1, size, size, 2 if size == 1 else size, 0)) for size in layout.sizes))
    leading = st.lists(st.sampled_from((1, 2, 3, 0, -1)), max_size=2)
    return st.builds(lambda added, kept: (*added, *kept), leading, targets)


@st.composite
def view_sizes(draw: st.DrawFn, layout: Layout) -> tuple[int, ...]:
    """Split, merge and pad the sizes, so that most targets have as many elements."""
    factors: list[int] = []
    for size in layout.sizes:
        small = next((factor for factor in (2, 3) if size and size % factor == 0 and draw(st.booleans())), 1)
        factors += [small, size // small] if small > 1 else [size]
    sizes: list[int] = []
    for factor in factors:
        if sizes and draw(st.booleans()):
            sizes[-1] *= factor
        else:
            sizes += [1] * draw(st.integers(0, 1)) + [factor]
    sizes += [1] * draw(st.integers(0, 1))
    if sizes and draw(st.integers(0, 5)) == 0:
        sizes[draw(st.integers(0, len(sizes) - 1))] = draw(st.sampled_from((-1, -1, 2, -2)))
    return tuple(sizes)


def slices() -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-5, 5)
    return st.builds(slice, bound, bound, st.sampled_from((None, 1, 1, 2, 3)))


def keys(layout: Layout) -> st.SearchStrategy[tuple[Any, ...]]:
    one = st.lists(st.integers(-2, 1) | slices() | st.none(), max_size=layout.ndim)
    return st.builds(lambda before, dots, after: ((*before, *dots, *after),), one, st.sampled_from(((), (...,))), one)


@st.composite
def strided(draw: st.DrawFn, layout: Layout) -> tuple[Any, ...]:
    count = draw(st.integers(0, 5))
    sizes = draw(st.tuples(*[st.integers(0, 4)] * count))
    strides = draw(st.tuples(*[st.integers(0, 13)] * count))
    return sizes, strides, draw(st.none() | st.integers(0, 5))


@st.composite
def moves(draw: st.DrawFn, layout: Layout) -> tuple[Any, ...]:
    if draw(st.booleans()):
        return draw(dims(layout)), draw(dims(layout))
    places = st.lists(dims(layout), max_size=2)
    return tuple(draw(places)), tuple(draw(places))


def unflatten_arguments(layout: Layout) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        dims(layout), st.sampled_from(((-1, 2), (2, -1), (1, -1), (-1, 1, 1), (3,), (0, -1), (-1,), (2, 2)))
    )


OPS: dict[str, Op] = {
    "transpose": Op(torch.Tensor.transpose, transpose, lambda a: st.tuples(dims(a), dims(a))),
    "swapaxes": Op(torch.Tensor.swapaxes, swapaxes, lambda a: st.tuples(dims(a), dims(a))),
    "permute": Op(torch.Tensor.permute, permute, lambda a: st.permutations(range(a.ndim)).map(lambda p: (tuple(p),))),
    "t": Op(torch.Tensor.t, t, lambda a: st.just(())),
    "mT": Op(lambda x: x.mT if x.ndim else x, mT, lambda a: st.just(())),
    "movedim": Op(torch.Tensor.movedim, movedim, moves),
    "unsqueeze": Op(torch.Tensor.unsqueeze, unsqueeze, lambda a: st.tuples(st.integers(-a.ndim - 1, a.ndim))),
    "squeeze": Op(torch.Tensor.squeeze, squeeze, lambda a: st.just(()) | st.tuples(dims(a))),
    "squeeze_many": Op(torch.Tensor.squeeze, squeeze, lambda a: st.tuples(st.lists(dims(a), max_size=2).map(tuple))),
    "expand": Op(torch.Tensor.expand, expand, lambda a: st.tuples(sizes_like(a))),
    "broadcast_to": Op(torch.Tensor.broadcast_to, broadcast_to, lambda a: st.tuples(sizes_like(a))),
    "select": Op(torch.Tensor.select, select, lambda a: st.tuples(dims(a), st.integers(-3, 2))),
    "slice": Op(
        torch.ops.aten.slice.Tensor,
        slice_dim,
        lambda a: st.builds(lambda dim, s: (dim, s.start, s.stop, s.step or 1), dims(a), slices()),
    ),
    "narrow": Op(torch.Tensor.narrow, narrow, lambda a: st.tuples(dims(a), st.integers(-3, 2), st.integers(-1, 3))),
    "unfold": Op(torch.Tensor.unfold, unfold, lambda a: st.tuples(dims(a), st.integers(-1, 3), st.integers(0, 3))),
    "diagonal": Op(torch.Tensor.diagonal, diagonal, lambda a: st.tuples(st.integers(-3, 3), dims(a), dims(a))),
    "as_strided": Op(torch.Tensor.as_strided, as_strided, strided),
    "index": Op(torch.Tensor.__getitem__, index, keys),
    "view": Op(torch.Tensor.view, view, lambda a: view_sizes(a).map(lambda sizes: (sizes,))),
    "unflatten": Op(torch.Tensor.unflatten, unflatten, unflatten_arguments),
}

# These read the tensor's bytes as another dtype first, so they stand apart from the chains.
DTYPE_OPS: dict[str, Op] = {
    "view_as_real": Op(torch.view_as_real, view_as_real, lambda a: st.just(())),
    "view_as_complex": Op(torch.view_as_complex, view_as_complex, lambda a: st.just(())),
    "view_dtype": Op(
        torch.Tensor.view,
        lambda a, dtype: view_dtype(a, 2, dtype.itemsize),
        lambda a: st.tuples(st.sampled_from((torch.int8, torch.int16, torch.float16, torch.int32, torch.int64))),
    ),
}
SOURCE_DTYPES = {"view_as_real": torch.complex64, "view_as_complex": torch.float32, "view_dtype": torch.int16}


def apply(op: Op, tensor: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor | None:
    """Run one operation on a tensor and on its layout; both must agree, and refuse the same arguments."""
    try:
        result = op.on_tensor(tensor, *arguments)
    except REFUSALS:
        result = None
    if result is not None and any(size < 0 for size in result.shape):
        result = None  # torch.zeros(()).expand(0, -1) has the sizes (0, -1)
    try:
        predicted = op.on_layout(layout_of(tensor), *arguments)
    except LayoutError:
        predicted = None
    assert predicted == (None if result is None else layout_of(result)), (layout_of(tensor), arguments)
    return result


@st.composite
def bases(draw: st.DrawFn, max_ndim: int = 5) -> torch.Tensor:
    """Make a dense tensor in one of the memory formats, at an offset in a storage with room for `as_strided`."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4, 1, 2, 6, 0)), max_size=max_ndim))
    dense = torch.empty(sizes, device="meta")
    if len(sizes) in (4, 5) and draw(st.booleans()):
        dense = torch.empty(
            sizes, device="meta", memory_format=torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
        )
    return torch.zeros(STORAGE * 2, dtype=torch.int8).as_strided(dense.shape, dense.stride(), draw(st.integers(0, 2)))


@st.composite
def views(draw: st.DrawFn, max_length: int = 5) -> torch.Tensor:
    """Make a tensor by a chain of view operations, each checked against the algebra."""
    tensor = draw(bases())
    for _ in range(draw(st.integers(0, max_length))):
        op = OPS[draw(st.sampled_from(sorted(OPS)))]
        result = apply(op, tensor, draw(op.arguments(layout_of(tensor))))
        if result is not None and result.ndim <= MAX_NDIM and result.numel() <= STORAGE:
            tensor = result
    return tensor
