"""What one copy at the origin of strided streams would save: bytes, before and after."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.analysis.functions import REORDERS, orders_operands
from stridewise.analysis.functions import short_name as short
from stridewise.analysis.lineage import Stream
from stridewise.analysis.origins import at_origin
from stridewise.analysis.rule import Claim
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.recording.model import LayoutRow
from stridewise.results.numbers import byte_count


class Saving(Struct, frozen=True):
    """Copies and bytes moved in a step, in place of others."""

    copies: float
    bytes_moved: float
    replaced: float
    """How many copies there are no more."""
    replaced_bytes: float

    @property
    def is_one(self) -> bool:
        """Whether fewer bytes are moved."""
        return self.bytes_moved < self.replaced_bytes

    def __str__(self) -> str:
        return (
            f"{_count(self.copies)} of {byte_count(self.bytes_moved)} a step"
            f" instead of {self.replaced:,.0f} that move {byte_count(self.replaced_bytes)}"
        )


def saving_at_origin(case: Case, claims: Sequence[Claim]) -> Saving | None:
    """If what an origin makes were copied there, into its own order; None where sizes or dtypes are not known."""
    made: dict[tuple[int, int], int] = {}
    replaced = []
    for place, claim in enumerate(claims):
        for position in claim.copies:
            stream = case.streams[position]
            if stream is None or stream.operand is None or stream.origin.kind == "inside":
                return None
            ref = at_origin(case, position, stream)
            row = case.flow.row(ref) if ref is not None else None
            size = bytes_of_copy(row) if row is not None else None
            if ref is None or size is None:
                return None
            made[place, case.log.refs[ref].object] = size
            if not (_is_reordered(case, stream) or _is_arranged(case, position)):
                replaced.append(position)
    moved = [case.copies[position].bytes_moved for position in replaced]
    steps = case.steps
    return Saving(
        len(made) / steps, sum(made.values()) / steps, len(replaced) / steps, sum(filter(None, moved)) / steps
    )


def bytes_of_copy(row: LayoutRow) -> int | None:
    """What a copy of a tensor into row-major order reads and writes."""
    size = ITEM_SIZES.get(row.dtype)
    order = layout.contiguous_strides(row.sizes)
    return None if size is None else layout.bytes_moved(row.sizes, row.strides, size, order, size)


def _count(copies: float) -> str:
    return "1 copy" if copies == 1 else f"{copies:,.0f} copies" if copies > 1 else "less than 1 copy"


def _is_reordered(case: Case, stream: Stream) -> bool:
    """Whether dimensions are swapped once more on the way: order at the origin is none at the payer."""
    return any(short(case.function(call)) in REORDERS for call in stream.carriers)


def _is_arranged(case: Case, position: int) -> bool:
    """Whether the payer puts dimensions in an order of its own first, as with `batch_first`: it copies all the same."""
    copy, row = case.copies[position], case.operand_row(position)
    return orders_operands(case.function(copy.call)) and row is not None and row.sizes != copy.sizes
