"""Which layouts an operand is run with, and where each puts its elements. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement, Operand
from stridewise.layout import Layout, MemoryFormat, format_order, span

CONTIGUOUS = Arrangement("x")
_FORMATS: tuple[MemoryFormat, ...] = ("channels_last", "channels_last_3d")
_MOST_ORDERS = 8
_MOST_DIMS = 6
"""Beyond these many dimensions only the last ones are sliced and expanded."""


class Placement(Struct, frozen=True):
    """Where a tensor's elements lie in a block of memory."""

    layout: Layout
    extent: int
    """Elements of the block, from its first."""


def place(arrangement: Arrangement, sizes: Sequence[int]) -> Placement:
    """Lay a tensor of these sizes out as an arrangement says. Units are elements."""
    ndim = len(sizes)
    if arrangement.strides is not None and len(arrangement.strides) == ndim:
        strides = _odd(arrangement.strides, sizes) if arrangement.odd_ones else arrangement.strides
        given = Layout(tuple(sizes), strides, arrangement.offset)
        return Placement(given, arrangement.offset + max(1, span(given)))
    order = _order(arrangement.order, ndim)
    steps = _aligned(arrangement.steps, ndim, 1)
    before, after = _aligned(arrangement.before, ndim, 0), _aligned(arrangement.after, ndim, 0)
    expanded = _dims(arrangement.expanded, ndim)
    moves, first, inner = [0] * ndim, arrangement.offset, 1
    for dim in reversed(order):
        if dim in expanded:
            continue
        natural = inner
        moves[dim] = natural * steps[dim]
        if dim == arrangement.windows:
            moves[dim] = max(1, natural // 2)
        first += before[dim] * natural
        inner *= before[dim] + max(sizes[dim] - 1, 0) * steps[dim] + 1 + after[dim]
    strides = _odd(moves, sizes) if arrangement.odd_ones else tuple(moves)
    return Placement(Layout(tuple(sizes), strides, first), arrangement.offset + inner)


def _odd(strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The same strides, with those of size 1 such as no allocation gives them."""
    return tuple(2 * prod(sizes) + 1 + dim if size == 1 else strides[dim] for dim, size in enumerate(sizes))


def grid(sizes: Sequence[int], *, read_only: bool, home: Arrangement | None = None) -> tuple[Arrangement, ...]:
    """The layouts that are worth running: each differs from the usual one, and from each other, for these sizes.

    Those whose elements share memory are for operands that are only read. `home` is the usual one, if it is not
    contiguous.
    """
    found: dict[tuple[object, ...], Arrangement] = {}
    first = [Arrangement("x contiguous")] if home is not None else []
    for arrangement in (*first, *_candidates(sizes, read_only=read_only)):
        if home is not None and (arrangement.offset or arrangement.odd_ones):  # nothing else is unusual about these
            arrangement = replace(arrangement, strides=home.strides, shares=home.shares)
        layout = place(arrangement, sizes).layout
        moving = tuple(
            stride for size, stride in zip(sizes, layout.strides, strict=True) if size > 1 or arrangement.odd_ones
        )
        found.setdefault((moving, layout.offset if arrangement.offset else bool(layout.offset)), arrangement)
    natural = place(home or CONTIGUOUS, sizes).layout
    found.pop((tuple(s for size, s in zip(sizes, natural.strides, strict=True) if size > 1), False), None)
    return tuple(found.values())


def gradient_grid(sizes: Sequence[int]) -> tuple[Arrangement, ...]:
    """The layouts that gradients come in: those of a slice, of `sum()`, of a transpose, and of a part of a `cat`.

    They fit outputs of any number of dimensions: dimensions are counted from the last.
    """
    found = [
        Arrangement("expanded, as behind sum()", expanded=tuple(range(-_MOST_DIMS, 0))),
        Arrangement("a part of a cat on the last dimension", after=(sizes[-1] if sizes else 1,)),
        Arrangement("every second element", steps=(2,)),
    ]
    if len(sizes) > 1:
        found.insert(1, Arrangement("transposed", order=(-1, -2)))
        found.append(Arrangement("expanded over the last dimension", expanded=(-1,)))
        found.append(Arrangement("a part of a cat on the first dimension", before=(sizes[0], *[0] * (len(sizes) - 1))))
    return tuple(found)


def size_variants(operands: Iterable[Operand]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Other sizes of all operands together: equal sizes become 1, or 0, at once; each alone of a single operand.

    Parameters keep theirs: a module has them as numbers too, and some kernels crash where the two disagree.
    """
    operands = tuple(operand for operand in operands if operand.role not in ("parameter", "buffer"))
    wanted: list[dict[str, tuple[int, ...]]] = []
    linked = sorted({size for operand in operands for size in operand.sizes if size > 1}, reverse=True)
    for small in (1, 0):
        for size in linked:
            changed = {
                operand.name: tuple(small if own == size else own for own in operand.sizes)
                for operand in operands
                if size in operand.sizes
            }
            wanted.append(changed)
    if len(operands) == 1:
        (operand,) = operands
        for dim, size in enumerate(operand.sizes):
            if size > 1:
                wanted.append({operand.name: (*operand.sizes[:dim], 1, *operand.sizes[dim + 1 :])})
    return tuple(variant for at, variant in enumerate(wanted) if variant not in wanted[:at])


# ------------------------------------------------------------------------------------------------------- candidates


def _candidates(sizes: Sequence[int], *, read_only: bool) -> Iterator[Arrangement]:
    ndim = len(sizes)
    orders = list(_orders(ndim))
    dims = range(max(0, ndim - _MOST_DIMS), ndim)
    yield Arrangement("x, one element into its storage", offset=1)
    yield from (_permuted(order) for order in orders)
    for dim in dims:
        yield _sliced(ndim, dim, "1:-1", before=1, after=1)
    for dim in dims:
        yield _sliced(ndim, dim, "::2", step=2)
    for dim in dims:
        size = sizes[dim]
        yield _sliced(ndim, dim, f":{size}", after=size, name=f"x.chunk(2, {dim})[0]")
        yield _sliced(ndim, dim, f"{size}:", before=size, name=f"x.chunk(2, {dim})[1]")
    if ndim > 1:
        backwards = tuple(reversed(range(ndim)))
        pad = (*[0] * (ndim - 1), 1)
        index = ", ".join([":"] * (ndim - 1) + ["1:-1"])
        yield Arrangement(f"x{_permutation(backwards)}[{index}]", order=backwards, before=pad, after=pad)
    if read_only:
        yield from _shared(sizes, dims)
    if 1 in sizes:
        yield Arrangement("x with odd strides where its size is 1", odd_ones=True)


def _shared(sizes: Sequence[int], dims: Iterable[int]) -> Iterator[Arrangement]:
    """Those in which indices share elements."""
    dims = [dim for dim in dims if sizes[dim] > 1]
    for dim in dims:
        yield Arrangement(f"x expanded over dimension {dim}", expanded=(dim,))
    if len(dims) > 1:
        yield Arrangement("x expanded over every dimension", expanded=tuple(range(len(sizes))))
    natural = place(CONTIGUOUS, sizes).layout.strides
    for dim in dims:
        if natural[dim] > 1:
            yield Arrangement(f"x in overlapping windows over dimension {dim}", windows=dim)


def _orders(ndim: int) -> Iterator[tuple[int, ...]]:
    plain = tuple(range(ndim))
    if ndim < 4:
        yield from (order for order in permutations(plain) if order != plain)
        return
    wanted = [order for name in _FORMATS if (order := format_order(name, ndim)) is not None]
    wanted += [tuple(reversed(plain)), (*plain[:-2], plain[-1], plain[-2])]
    wanted += [(*plain[:dim], dim + 1, dim, *plain[dim + 2 :]) for dim in range(ndim - 1)]
    wanted += [(*plain[1:], 0), (plain[-1], *plain[:-1])]
    yield from list(dict.fromkeys(wanted))[:_MOST_ORDERS]


def _permuted(order: tuple[int, ...]) -> Arrangement:
    for name in _FORMATS:
        if order == format_order(name, len(order)):
            return Arrangement(f"x in {name}", order=order)
    return Arrangement(f"x{_permutation(order)}", order=order)


def _permutation(order: tuple[int, ...]) -> str:
    """The call that gives a tensor with this memory order from a contiguous one."""
    dims = tuple(order.index(dim) for dim in range(len(order)))
    moved = [dim for dim, to in enumerate(dims) if dim != to]
    if len(moved) == 2:
        return ".t()" if len(order) == 2 else f".transpose({moved[0]}, {moved[1]})"
    return f".permute{dims}"


def _sliced(
    ndim: int, dim: int, index: str, *, before: int = 0, after: int = 0, step: int = 1, name: str | None = None
) -> Arrangement:
    def only(value: int, other: int) -> tuple[int, ...]:
        return tuple(value if at == dim else other for at in range(ndim))

    return Arrangement(
        name or f"x[{', '.join([*[':'] * dim, index])}]",
        steps=only(step, 1),
        before=only(before, 0),
        after=only(after + step - 1, 0),
    )


# ------------------------------------------------------------------------------------------------------ fit to sizes


def _order(order: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(ndim))
    if order and order[0] < 0:  # of the last dimensions
        last = [ndim + dim for dim in order if ndim + dim >= 0]
        return (*(dim for dim in range(ndim) if dim not in last), *last)
    return order


def _aligned(values: tuple[int, ...] | None, ndim: int, default: int) -> list[int]:
    """One value for each dimension; fewer are those of the last dimensions."""
    given = list(values or ())[-ndim:] if ndim else []
    return [default] * (ndim - len(given)) + given


def _dims(dims: tuple[int, ...], ndim: int) -> frozenset[int]:
    return frozenset(dim % ndim for dim in dims if -ndim <= dim < ndim)
