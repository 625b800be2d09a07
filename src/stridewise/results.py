"""What each command yields: torch-free values that hold findings and a few named tables."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Cost, Finding, Site

SCHEMA_VERSION = 1
"""Of the JSON form. It changes when a field is renamed, removed, or changes its meaning."""

Kind = Literal["library", "compiled", "gradient", "hidden", "implicit", "explicit"]
Change = Literal["materialize", "reorder", "pack", "unpack"]


class Totals(Struct, frozen=True):
    """The layout tax of a step. Every figure but `steps` is per step."""

    steps: int
    steps_found: bool
    """False when nothing in the recording told steps apart: then all of it counts as one."""
    step_ns: float | None
    copies: float | None
    """None, as the figures behind it, for a trace that was recorded without strides."""
    bytes_moved: float | None
    duration_ns: float | None
    share: float | None
    share_of: str
    """`step time` on the CPU, `kernel-busy time` on a device."""
    by_kind: dict[str, Cost]
    by_change: dict[str, Cost]
    """Both add up to the tax."""
    untaxed: dict[str, Cost]
    """Copies that are listed but no fault of layout: by the reason why."""


class Copy(Struct, frozen=True):
    """One copy of the recording, never divided."""

    kind: Kind
    change: Change
    cast: bool
    """It changes the dtype in the same pass."""
    op: str
    """The copying operator's nearest named parent, such as `aten::layer_norm`."""
    call: str | None
    """The function that the program called."""
    site: Site | None
    step: int | None
    """None outside steps."""
    sizes: tuple[int, ...]
    source_strides: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    """None for a library's blocked format, which has no strides."""
    source_dtype: str | None
    dtype: str | None
    bytes_moved: int | None
    bytes_written: int | None
    duration_ns: int | None
    gb_per_s: float | None
    backward: bool
    inferred: bool
    taxed: bool
    reason: str | None
    """Why it is not taxed."""
    finding: str | None
    """Fingerprint of the finding that it is charged to."""


class Kernel(Struct, frozen=True):
    """One kernel on a device."""

    name: str
    duration_ns: int
    device: int | None
    stream: int | None
    op: str | None
    site: Site | None
    step: int | None


class ModuleRow(Struct, frozen=True):
    """What went into and came out of a module in the first step in which it ran."""

    module: str
    type: str
    calls: int
    depth: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    changed: bool
    """The layout class of its main output differs from that of its main input."""
    first_change: bool
    """The first module, in order of execution, whose own code makes the change."""


class Folded(Struct, frozen=True):
    """The findings that each cost less than `min_share` of a step: they are notes, and fold into one line."""

    findings: int
    min_share: float
    cost: Cost

    def holds(self, finding: Finding) -> bool:
        """Whether a finding is one of them. One that costs nothing itself only points at others: it is not."""
        share = finding.cost.share
        return finding.severity == "note" and share is not None and finding.cost.copies > 0 and share < self.min_share


class Report(Struct, frozen=True):
    """What a recording says."""

    findings: tuple[Finding, ...]
    totals: Totals
    folded: Folded
    copies: tuple[Copy, ...]
    kernels: tuple[Kernel, ...]
    modules: tuple[ModuleRow, ...]
    notes: tuple[str, ...]
    environment: dict[str, str]
    schema_version: int = SCHEMA_VERSION

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The findings that are not folded."""
        return tuple(finding for finding in self.findings if not self.folded.holds(finding))

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)


class ScriptOutcome(Struct, frozen=True):
    """How a script that was run and recorded ended."""

    report: Report | None
    """None if nothing was recorded."""
    exit_code: int
    """The script's own; 130 after a KeyboardInterrupt."""
    message: str | None
    """What could not be recorded or saved, and why."""
