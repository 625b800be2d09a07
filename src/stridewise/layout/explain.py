"""A layout in words: which class it is, why, and which number would have to be another."""

from __future__ import annotations

from stridewise.layout.classes import name
from stridewise.layout.formats import contiguous_strides, format_strides, is_contiguous, suggested_format
from stridewise.layout.memory import memory_order, span, stored
from stridewise.layout.model import Layout, MemoryFormat, numel
from stridewise.layout.reshaping import joined


def explain(layout: Layout, itemsize: int | None = None) -> str:
    """Say what layout this is and why, for a reader who has never heard of strides.

    Names the first dimension at fault and the stride it would need, and what kernels will take the layout
    for where that is not its class. With `itemsize`, in bytes, amounts are given in bytes too.
    """
    return f"{name(layout)}: {' '.join(filter(None, (reason(layout, itemsize), _views(layout))))}"


def reason(layout: Layout, itemsize: int | None = None) -> str:
    """Say why this layout is of its class and what kernels take it for: `explain` without the name and without advice
    on views.
    """
    return " ".join(filter(None, (_REASONS[name(layout)](layout, itemsize), _kernels(layout))))


def _contiguous(layout: Layout, itemsize: int | None) -> str:
    if layout.is_empty:
        return "it has no elements, so any strides will do."
    if numel(layout) == 1:
        return f"it has {_amount(1, itemsize)} only."
    return f"its {_amount(numel(layout), itemsize)} lie in memory without holes, in the order of their indices."


def _channels_last(layout: Layout, itemsize: int | None) -> str:
    return (
        f"its {_amount(numel(layout), itemsize)} lie in memory without holes, the channels of one pixel side by side, "
        f"which suits convolutions; {_against_contiguous(layout)}."
    )


def _permuted(layout: Layout, itemsize: int | None) -> str:
    return (
        f"its {_amount(numel(layout), itemsize)} lie in memory without holes, but in another order than their indices, "
        f"{_order(layout)}; {_against_contiguous(layout)}."
    )


def _expanded(layout: Layout, itemsize: int | None) -> str:
    dim = next(at for at in range(layout.ndim) if layout.sizes[at] > 1 and layout.strides[at] == 0)
    return (
        f"dimension {dim} has stride 0, so its {layout.sizes[dim]} positions are the same memory; of "
        f"{_amount(numel(layout), itemsize)} only {_amount(stored(layout), itemsize)} "
        f"{'is' if stored(layout) == 1 else 'are'} stored. Contiguous would need stride "
        f"{contiguous_strides(layout.sizes)[dim]} there."
    )


def _overlapping(layout: Layout, itemsize: int | None) -> str:
    dim, _ = _fault(layout, gaps=False)
    return (
        f"different indices share memory: {_amount(numel(layout), itemsize)} are read from "
        f"{_amount(stored(layout), itemsize)} stored; dimension {dim} has stride {layout.strides[dim]}, "
        f"contiguous would need {contiguous_strides(layout.sizes)[dim]}. Writing to it in place goes wrong."
    )


def _gapped(layout: Layout, itemsize: int | None) -> str:
    dim, needed = _fault(layout, gaps=True)
    holes = span(layout) - stored(layout)
    text = (
        f"{_amount(holes, itemsize)} of the {span(layout)} that it spans, {100 * holes / span(layout):.2g} %, "
        f"{'is a hole' if holes == 1 else 'are holes'}; dimension {dim} has stride {layout.strides[dim]}, "
        f"without holes it would need {needed}."
    )
    if list(memory_order(layout)) == sorted(memory_order(layout)):
        return text
    return f"{text} It is in another order than its indices, too: {_order(layout)}."


_REASONS = {
    "contiguous": _contiguous,
    "channels_last": _channels_last,
    "channels_last_3d": _channels_last,
    "permuted": _permuted,
    "expanded": _expanded,
    "overlapping": _overlapping,
    "gapped": _gapped,
}


def _against_contiguous(layout: Layout) -> str:
    needed = contiguous_strides(layout.sizes)
    dim = next(at for at in range(layout.ndim) if layout.sizes[at] > 1 and layout.strides[at] != needed[at])
    return f"dimension {dim} has stride {layout.strides[dim]}, contiguous would need {needed[dim]}"


def _order(layout: Layout) -> str:
    first, *rest = memory_order(layout)
    return f"dimension {first} outermost, then {', '.join(map(str, rest))}"


def _fault(layout: Layout, *, gaps: bool) -> tuple[int, int]:
    """Find the innermost dimension that steps too far (`gaps`) or not far enough, and the stride that is neither."""
    filled = 1
    for dim in reversed(memory_order(layout)):
        stride = layout.strides[dim]
        if (gaps and stride > filled) or (not gaps and stride < filled):
            return dim, filled
        filled += (layout.sizes[dim] - 1) * stride
    raise AssertionError(f"no such fault in {layout}")


def _kernels(layout: Layout) -> str:
    """Say which format kernels pick, where `is_contiguous` lets one expect another."""
    if layout.ndim not in (4, 5) or layout.is_empty:
        return ""
    channels_last: MemoryFormat = "channels_last" if layout.ndim == 4 else "channels_last_3d"
    suggested = suggested_format(layout)
    if suggested == name(layout) or (suggested == "contiguous" and not is_contiguous(layout, channels_last)):
        return ""
    who = "convolution, pooling and interpolation"
    if suggested == channels_last and not is_contiguous(layout):
        return f"For {who} its strides are those of {channels_last} all the same."
    # It is dense in the other format, so only a dimension of size 1 can have a stride that rules that one out.
    other: MemoryFormat = "contiguous" if suggested == channels_last else channels_last
    expected = format_strides(layout.sizes, other)
    columns = enumerate(zip(layout.sizes, layout.strides, expected, strict=True))
    dim, stride, needed = next((at, own, due) for at, (size, own, due) in columns if size == 1 and own != due)
    return (
        f"But {who} look at dimensions of size 1 too and take it for {suggested}: "
        f"dimension {dim} has stride {stride}, {other} would need {needed}."
    )


def _views(layout: Layout) -> str:
    """Say which dimensions a view can join, where it is not all of them."""
    groups = joined(layout)
    several = [group for group in groups if sum(layout.sizes[dim] > 1 for dim in group) > 1]
    if len(groups) < 2:
        return ""
    if not several:
        return "No view can join its dimensions; reshape copies."
    named = [f"{', '.join(map(str, group[:-1]))} and {group[-1]}" for group in several]
    return f"A view can join dimensions {'; '.join(named)}; to join others, reshape copies."


def _amount(elements: int, itemsize: int | None) -> str:
    words = f"{elements} element{'' if elements == 1 else 's'}"
    return words if itemsize is None else f"{words} ({_bytes(elements * itemsize)})"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
