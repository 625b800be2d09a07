"""Which tensor of a convolution oneDNN converts: told by its sizes, and by which side of the conversion is torch's."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal

from stridewise import layout
from stridewise.analysis.functions import CONVOLUTIONS, short_name
from stridewise.analysis.lineage import moving

if TYPE_CHECKING:
    from stridewise.analysis.case import Case
    from stridewise.analysis.copies import TracedCopy
    from stridewise.recording.model import LayoutRow

Role = Literal[
    "its input",
    "its weight",
    "its result",
    "the gradient of its input",
    "the gradient of its weight",
    "the gradient of its result",
    "its input or the gradient of its result",
]
IMAGES: frozenset[Role] = frozenset(
    {
        "its input",
        "its result",
        "the gradient of its input",
        "the gradient of its result",
        "its input or the gradient of its result",
    }
)


_WRITTEN: Role = "the gradient of its input"


def role_of(case: Case, position: int) -> Role | None:
    """What a conversion inside a convolution is of; None where sizes and strides do not tell."""
    copy = case.copies[position]
    if copy.call < 0 or copy.sizes is None or short_name(case.function(copy.call)) not in CONVOLUTIONS:
        return None
    call = case.log.calls[copy.call]
    given = [case.flow.row(ref) for ref in call.inputs[:2]]
    made = case.flow.row(call.outputs[0]) if call.outputs else None
    if len(given) < 2 or given[0] is None or given[1] is None or made is None:
        return None
    image, weight = given[0], given[1]
    spatial = len(weight.sizes) - 2
    of_input, of_result = (copy.sizes == _as_image(row, spatial) for row in (image, made))
    of_weight = prod(copy.sizes) == prod(weight.sizes) and copy.sizes[-spatial:] == weight.sizes[2:]
    if of_weight:
        return None if of_input or of_result else _of_weight(copy, weight)
    return _of_image(copy, image, of_input=of_input, of_result=of_result)


def is_of_own_result(case: Case, position: int) -> bool:
    """Whether a copy inside a convolution brings its result into the order that it is handed on in."""
    copy, stream = case.copies[position], case.streams[position]
    if copy.backward or copy.call < 0 or short_name(case.function(copy.call)) not in CONVOLUTIONS:
        return False
    if stream is None or stream.operand is not None or copy.sizes is None or copy.strides is None:
        return False
    made = (case.flow.row(ref) for ref in case.log.calls[copy.call].outputs)
    wanted = moving(copy.sizes, copy.strides)
    return any(row is not None and moving(row.sizes, row.strides) == wanted for row in made)


def is_row_major_convolution(case: Case, position: int) -> bool:
    """Whether a copy is from channels_last to row-major order, in a convolution that was given row-major tensors."""
    copy = case.copies[position]
    if copy.call < 0 or short_name(case.function(copy.call)) not in CONVOLUTIONS or copy.sizes is None:
        return False
    if copy.source_strides is None or copy.strides is None:
        return False
    given = [case.flow.row(ref) for ref in case.log.calls[copy.call].inputs[:2]]
    return (
        all(row is not None and layout.is_contiguous(row.layout) for row in given)
        and layout.name(layout.Layout(copy.sizes, copy.source_strides)).startswith("channels_last")
        and layout.is_contiguous(layout.Layout(copy.sizes, copy.strides))
    )


def _of_weight(copy: TracedCopy, weight: LayoutRow) -> Role:
    if not copy.backward:
        return "its weight"
    assert copy.sizes is not None
    if copy.source_strides is None:
        return "the gradient of its weight"
    is_read = copy.strides is None or moving(copy.sizes, copy.source_strides) == moving(weight.sizes, weight.strides)
    return "its weight" if is_read else "the gradient of its weight"


def _of_image(copy: TracedCopy, image: LayoutRow, *, of_input: bool, of_result: bool) -> Role | None:
    assert copy.sizes is not None
    from_torch, to_torch = copy.source_strides is not None, copy.strides is not None
    if not (of_input or of_result) or not (from_torch or to_torch):
        return None
    is_read = from_torch
    if copy.source_strides is not None and to_torch:  # both sides may be torch's: the image's own order tells
        is_read = moving(copy.sizes, copy.source_strides) == moving(image.sizes, image.strides)
    if not copy.backward:
        return "its input" if is_read and of_input else "its result" if of_result and not is_read else None
    if not of_input:
        return "the gradient of its result" if from_torch else None
    if of_result:
        return "its input or the gradient of its result" if not to_torch else None if from_torch else _WRITTEN
    return "its input" if is_read else _WRITTEN


def _as_image(row: LayoutRow, spatial: int) -> tuple[int, ...]:
    """Sizes as oneDNN has them: with a batch, and of a sequence as an image one pixel high."""
    sizes = (1, *row.sizes) if len(row.sizes) == spatial + 1 else row.sizes
    return (*sizes[:-1], 1, *sizes[-1:]) if spatial == 1 else sizes
