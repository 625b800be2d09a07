"""What `stridewise diff` yields."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Severity, Site
from stridewise.results.report import Cause
from stridewise.results.schema import SCHEMA_VERSION

Trend = Literal["appeared", "grew", "changed", "unknown", "shrank", "went", "same"]
"""`changed`: more copies that move fewer bytes, or the other way round. `unknown`: not measured on both sides.

Copies, bytes and severity decide, never time. What a difference in the number of steps explains is `same`.
"""
Worse = Literal["hazards", "copies", "bytes_moved"]


class Delta(Struct, frozen=True):
    """One figure before and after."""

    old: float | None
    new: float | None
    delta: float | None
    """None where one of the two was not measured."""


class CostDelta(Struct, frozen=True):
    """What something cost in a step, and what it costs now."""

    copies: Delta
    bytes_moved: Delta
    duration_ns: Delta
    share: Delta


class PayerDiff(Struct, frozen=True):
    """Calls of one function at one place that hold copies, on both sides."""

    trend: Trend
    site: Site
    op: str
    cost: CostDelta


class FindingDiff(Struct, frozen=True):
    """One finding on both sides, or on the only side that has it."""

    trend: Trend
    code: str
    title: str
    site: Site
    """In NEW; in OLD, where it went."""
    old_site: Site | None
    """Where it was; None where it appeared."""
    old_severity: Severity | None
    new_severity: Severity | None
    count: Delta
    cost: CostDelta
    payers: tuple[PayerDiff, ...]
    fingerprint: str


class KernelDiff(Struct, frozen=True):
    """Device kernels that only change layout, of one name, operator and cause, per step."""

    trend: Trend
    name: str
    op: str | None
    cause: Cause
    count: Delta
    duration_ns: Delta


class DiffTotals(Struct, frozen=True):
    """The layout tax of a step on both sides; of the selected findings, where some were selected."""

    trend: Trend
    hazards: Delta
    """Findings of severity `error`, with their counts."""
    cost: CostDelta
    step_ns: Delta
    layout_kernels: Delta
    """How many device kernels only change layout; None without a device."""


class DiffSide(Struct, frozen=True):
    """What a side's figures were measured on."""

    steps: int
    steps_found: bool
    share_of: str
    environment: dict[str, str]


class Diff(Struct, frozen=True):
    """What layout did to a program in OLD, against what it does in NEW. Every figure is per step."""

    ok: bool
    """Nothing grew beyond the tolerance."""
    worse: tuple[Worse, ...]
    """What did."""
    tolerance: float
    """By which share of OLD copies and bytes may grow. Hazards may not."""
    old: DiffSide
    new: DiffSide
    totals: DiffTotals
    findings: tuple[FindingDiff, ...]
    """What grew most comes first."""
    kernels: tuple[KernelDiff, ...]
    notes: tuple[str, ...]
    """What cannot be compared, and what to know about the two."""
    min_share: float = 0.0
    schema_version: int = SCHEMA_VERSION

    @property
    def listed(self) -> tuple[FindingDiff, ...]:
        """The findings that differ and are not too small to show. What made things worse never is."""
        return tuple(row for row in self.findings if row.trend != "same" and not self._is_small(row))

    @property
    def folded(self) -> tuple[FindingDiff, ...]:
        """Those that differ and are too small."""
        return tuple(row for row in self.findings if row.trend != "same" and self._is_small(row))

    def _is_small(self, row: FindingDiff) -> bool:
        if "error" in (row.old_severity, row.new_severity):
            return False
        if not self.ok and row.trend in ("appeared", "grew", "changed"):
            return False
        copies, share = row.cost.copies, row.cost.share
        shares = [part for part, paid in ((share.old, copies.old), (share.new, copies.new)) if paid]
        return bool(shares) and all(part is not None and part < self.min_share for part in shares)
