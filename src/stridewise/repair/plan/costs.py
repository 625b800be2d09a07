"""What calls cost on operands as they were and on operands in order, and what a plan makes of that. No torch.

In order means row-major.
"""

from msgspec import Struct

from stridewise.findings import Site

Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""Sizes and strides of several tensors."""


def key_of(site: Site) -> tuple[object, ...]:
    """The place of a call in the source, in whatever module."""
    return site.file, site.line, site.column, site.end_line, site.end_column, site.via


class CallCost(Struct, frozen=True):
    """Equal calls with strided operands. Times are of one call, with its backward if it has one."""

    function: str
    """As the call log names it."""
    sites: tuple[Site, ...]
    inputs: Layouts
    """Of all tensors among its arguments, as the call log counts them."""
    recorded_ns: float
    in_order_ns: float
    """On operands that are all in order."""
    gives_order: tuple[bool, ...]
    """Of each tensor that it gives: whether that is in order if the operands are."""


class CopyCost(Struct, frozen=True):
    """Putting a tensor in order."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    ns: float


class Costs(Struct, frozen=True):
    """All that was measured."""

    calls: tuple[CallCost, ...] = ()
    copies: tuple[CopyCost, ...] = ()


NO_COSTS = Costs()


class PutInOrder(Struct, frozen=True):
    """A place of the source behind which a tensor is put in order."""

    site: Site
    function: str
    call: int
    """One of the calls that are made there."""
    output: int
    """Which of the tensors that it gives."""


class Change(Struct, frozen=True):
    """What a plan changes at one place of the source."""

    site: Site
    calls: tuple[int, ...]
    """The calls that are made there in the step that was looked at."""
    ns: float
    """Per step; negative: less time."""


class Plan(Struct, frozen=True):
    """Where to put tensors in order so that a step is cheapest. Times are per step, of the calls that it looked at."""

    conversions: tuple[PutInOrder, ...]
    before_ns: float
    after_ns: float
    changes: tuple[Change, ...]
    """The largest first. What a conversion costs counts where it is put."""
    mended: tuple[int, ...]
    """The calls that get their operands in order."""

    @property
    def saving_ns(self) -> float:
        """What a step gains."""
        return self.before_ns - self.after_ns


__all__ = ["NO_COSTS", "CallCost", "Change", "CopyCost", "Costs", "Layouts", "Plan", "PutInOrder", "key_of"]
