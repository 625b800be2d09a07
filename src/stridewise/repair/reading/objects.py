"""Live tensors as kinds look at them. No torch: an object that is one has torch imported."""

import sys
from collections.abc import Iterator
from typing import Any

from stridewise.layout import Layout
from stridewise.recording.model import LayoutRow
from stridewise.repair.reading.nest import leaves


def is_tensor(value: Any) -> bool:
    """Whether an object is a tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def layout(tensor: Any) -> Layout | None:
    """A tensor's layout; None if it has none."""
    from stridewise.recorder.tensors import layout_of

    found = layout_of(tensor)
    return found if isinstance(found, Layout) else None


def tensors(value: Any) -> Iterator[tuple[str, Any, Layout]]:
    """The strided tensors in arguments or results, each with its path."""
    for path, leaf in leaves(value):
        if is_tensor(leaf) and (found := layout(leaf)) is not None:
            yield path, leaf, found


def inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, Layout]]:
    """The tensors that a model is called with, by the paths that conversions have: `0`, `1.pixel_values`, `mask`."""
    yield from tensors(args)
    yield from tensors(kwargs)


def memory(tensor: Any) -> Any:
    """What tells one storage from another."""
    return tensor.device, tensor.untyped_storage().data_ptr()


def is_row_of(row: LayoutRow | None, tensor: Any, shape: Layout) -> bool:
    """Whether the log's layout of a tensor is that of a live one, offset and device aside."""
    return (
        row is not None
        and (row.sizes, row.strides) == (shape.sizes, shape.strides)
        and row.dtype == str(tensor.dtype).removeprefix("torch.")
    )
