"""An independent count of copies: over the profiler's own event tree, by the definition alone."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch._C._profiler import _EventType
from torch.profiler import profile

Row = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str, bool]
"""Sizes, strides of the source, strides of the destination, change, whether in backward."""


def count_copies(profiler: profile) -> Counter[Row]:
    assert profiler.profiler is not None
    tree = profiler.profiler.kineto_results.experimental_event_tree()
    return Counter(row for event, backward in _walk(tree, False) if (row := _copy(event, backward)) is not None)


def _walk(events: Any, backward: bool) -> Iterator[tuple[Any, bool]]:
    for event in events:
        inside = backward or event.name.startswith("autograd::engine::evaluate_function")
        yield event, inside
        yield from _walk(event.children, inside)


def _copy(event: Any, backward: bool) -> Row | None:
    if event.typed[0] != _EventType.TorchOp or event.name != "aten::copy_":
        return None
    inputs = event.typed[1].inputs
    if len(inputs) < 2 or not all(hasattr(tensor, "strides") for tensor in inputs[:2]):
        return None
    destination, source = inputs[:2]
    if destination.sizes != source.sizes or destination.device != source.device or 0 in destination.sizes:
        return None
    sizes, strides, source_strides = tuple(destination.sizes), tuple(destination.strides), tuple(source.strides)
    dims = [(size, a, b) for size, a, b in zip(sizes, source_strides, strides, strict=True) if size > 1]
    if all(a == b for _, a, b in dims):
        return None
    return sizes, source_strides, strides, _change(dims), backward


def _change(dims: list[tuple[int, int, int]]) -> str:
    if any(a == 0 for _, a, _ in dims):
        return "materialize"

    def order(which: int) -> list[int]:
        moving = [dim for dim in range(len(dims)) if dims[dim][which] != 0]
        return sorted(moving, key=lambda dim: (-dims[dim][which], dim))

    def has_gaps(which: int) -> bool:
        expected = 1
        for dim in reversed(order(which)):
            if dims[dim][which] != expected:
                return True
            expected *= dims[dim][0]
        return False

    if order(1) != order(2):
        return "reorder"
    return "pack" if has_gaps(1) else "unpack"
