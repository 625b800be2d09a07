"""Other sizes over the same elements: `view`, and what `reshape` and `flatten` do where no view exists."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stridewise.layout.errors import LayoutError
from stridewise.layout.formats import contiguous_strides
from stridewise.layout.model import Layout, Outcome, numel, wrap_dim


def view(layout: Layout, sizes: Sequence[int]) -> Layout:
    """Lay other sizes over the same memory, as `Tensor.view`; one of them may be -1.

    Raises `LayoutError` when the number of elements differs, and when two dimensions do not merge
    (`at::detail::computeStride`): `reshape` copies then.
    """
    target = infer_sizes(numel(layout), sizes)
    strides = view_strides(layout, target)
    if strides is None:
        raise LayoutError(f"sizes {layout.sizes} with strides {layout.strides} have no view with sizes {target}")
    return Layout(target, strides, layout.offset)


def reshape(layout: Layout, sizes: Sequence[int]) -> Outcome:
    """Reshape as `Tensor.reshape`: a view where there is one, else a contiguous copy."""
    target = infer_sizes(numel(layout), sizes)
    strides = view_strides(layout, target)
    if strides is None:
        return Outcome(Layout(target, contiguous_strides(target)), copied=True)
    return Outcome(Layout(target, strides, layout.offset), copied=False)


def flatten(layout: Layout, start: int = 0, end: int = -1) -> Outcome:
    """Merge dimensions `start` to `end`, both included, as `Tensor.flatten`: a view where there is one, else a copy."""
    first, last = wrap_dim(start, layout.ndim), wrap_dim(end, layout.ndim)
    if first > last:
        raise LayoutError(f"flatten from dimension {first} to {last}: the first comes after the last")
    if layout.ndim and first == last:
        return Outcome(layout, copied=False)
    merged = prod(layout.sizes[first : last + 1])
    return reshape(layout, (*layout.sizes[:first], merged, *layout.sizes[last + 1 :]))


def unflatten(layout: Layout, dim: int, sizes: Sequence[int]) -> Layout:
    """Split a dimension into `sizes`, one of which may be -1, as `Tensor.unflatten`: always a view."""
    if not layout.ndim:
        raise LayoutError("a tensor without dimensions has none to unflatten")
    if not sizes:
        raise LayoutError("unflatten into no sizes")
    at = wrap_dim(dim, layout.ndim)
    return view(layout, (*layout.sizes[:at], *infer_sizes(layout.sizes[at], sizes), *layout.sizes[at + 1 :]))


def infer_sizes(count: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Replace a -1 so that the sizes hold `count` elements (`at::infer_size`).

    Raises `LayoutError` where they cannot.
    """
    given = tuple(sizes)
    if any(size < -1 for size in given) or given.count(-1) > 1:
        raise LayoutError(f"sizes {given} have more than one -1, or another negative number")
    if -1 not in given:
        if prod(given) != count:
            raise LayoutError(f"sizes {given} do not hold {count} elements")
        return given
    known = -prod(given)
    if known == 0 or count % known:
        raise LayoutError(f"no size in place of -1 makes {given} hold {count} elements")
    return tuple(count // known if size == -1 else size for size in given)


def joined(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """List what a view can join: groups of neighbouring dimensions, each of which some view makes one of.

    Dimensions of size 1 join anything, and belong to the group before them, or to the first. Of an empty layout all
    dimensions join.
    """
    if layout.is_empty:
        return (tuple(range(layout.ndim)),) if layout.ndim else ()
    groups: list[list[int]] = []
    outer: int | None = None
    for dim, (size, stride) in enumerate(zip(layout.sizes, layout.strides, strict=True)):
        if size == 1 and groups:
            groups[-1].append(dim)
        elif outer is None or outer == size * stride:
            groups = groups or [[]]
            groups[-1].append(dim)
        else:
            groups.append([dim])
        outer = outer if size == 1 else stride
    return tuple(map(tuple, groups))


def view_strides(layout: Layout, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Compute the strides of a view with as many elements, or None where there is none (`at::detail::computeStride`).

    Dimensions that step through memory evenly form a run. Each new dimension has to lie inside one run.
    """
    if layout.is_empty:
        # Any strides would do: torch keeps them for equal sizes, and takes those of new memory otherwise.
        return layout.strides if sizes == layout.sizes else contiguous_strides(sizes)
    strides: list[int] = []
    inner_first = list(sizes)
    for length, stride in _runs(layout):
        covered = 1
        # A dimension of size 1 goes with the run inside of it: its stride says so, and other kernels read it.
        while inner_first and (covered < length or inner_first[-1] == 1):
            strides.append(covered * stride)
            covered *= inner_first.pop()
        if covered != length:
            return None
    return tuple(reversed(strides))


def _runs(layout: Layout) -> list[tuple[int, int]]:
    """List (length, stride) of the runs, innermost first. The last dimension's stride begins one even at size 1."""
    runs = [(1, layout.strides[-1] if layout.ndim else 1)]
    for size, stride in reversed(list(zip(layout.sizes, layout.strides, strict=True))):
        length, step = runs[-1]
        if size == 1:
            continue
        if stride == length * step:
            runs[-1] = (length * size, step)
        else:
            runs.append((size, stride))
    return runs
