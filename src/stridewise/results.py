"""What each command yields: torch-free values that hold findings and a few named tables."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Cost, Finding, Severity, Site

SCHEMA_VERSION = 1
"""Of the JSON form. It changes when a field is renamed, removed, or changes its meaning."""

Kind = Literal["library", "compiled", "gradient", "hidden", "implicit", "explicit"]
Change = Literal["materialize", "reorder", "pack", "unpack"]
Cause = Literal["transpose", "copy", "generated", "possible"]
"""Why a kernel only changes layout: it is a vendor library's transpose, runs a copy that does (`Copy`), was generated
for nothing else, or may do so: its name fits, and nothing in the trace shows it."""
Family = Literal["convolution", "matmul", "normalization", "attention", "pooling"]


class KernelTime(Struct, frozen=True):
    """Kernels of one kind together."""

    count: float
    duration_ns: float
    share: float | None
    """Of kernel-busy time."""
    share_of_step: float | None = None


class LayoutKernels(Struct, frozen=True):
    """The device kernels that only change layout, per step."""

    count: float
    duration_ns: float
    share: float | None
    share_of: str
    """Always `kernel-busy time`."""
    share_of_step: float | None
    by_cause: dict[str, KernelTime]
    """Adds up to these figures."""
    possible: KernelTime
    """Kernels that may only change layout, but nothing in the trace shows it. In none of the figures above."""


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
    """`step time` on the CPU, `kernel-busy time` on a device, `time in oneDNN` for a log of it without times of day."""
    by_kind: dict[str, Cost]
    by_change: dict[str, Cost]
    """Both add up to the tax."""
    untaxed: dict[str, Cost]
    """Copies that are listed but no fault of layout: by the reason why."""
    layout_kernels: LayoutKernels | None = None
    """None where no kernel of a device was recorded."""


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
    sizes: tuple[int, ...] | None
    """None for a vendor's transpose: a kernel's name tells that it ran, not on what."""
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
    """Equal kernels of the whole recording: of one name and cause, launched by one operator at one place."""

    name: str
    cause: Cause | None
    """None for a kernel that computes."""
    op: str | None
    """The operator that launched it."""
    site: Site | None
    range: str | None
    """The annotation (`record_function`, NVTX) around the launch."""
    device: int | None
    count: int
    duration_ns: int
    share: float | None
    """Of the kernel-busy time of the whole recording."""


class StreamRow(Struct, frozen=True):
    """What one stream of a device did in a step."""

    device: int | None
    stream: int | None
    busy_ns: float
    """Time in which kernels ran on it."""
    kernels: float
    layout: KernelTime
    """Those of them that only change layout; `share` is of this stream's busy time."""


class PathRow(Struct, frozen=True):
    """Which implementation ran an operator. Equal executions of the whole recording are one row."""

    family: Family
    op: str
    site: Site | None
    backend: str
    """`cuDNN`, `MIOpen`, `oneDNN`, `cuBLAS`, `flash attention`, `ATen`, …"""
    dtype: str | None
    """As executed, which under autocast is not that of the operands."""
    autocast: bool
    """Operands were cast for this operator by autocast."""
    operands: tuple[str, ...]
    """Layouts as the library saw them: `N, lda 512` for a matrix, `channels_last` for an image."""
    missed: str | None
    """The faster path that layout kept it from, and why."""
    evidence: str
    count: int
    duration_ns: int | None
    inferred: bool = False


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
    streams: tuple[StreamRow, ...] = ()
    paths: tuple[PathRow, ...] = ()
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


class FleetFile(Struct, frozen=True):
    """A file of many, and which rank recorded it, if the trace or the file's name tells."""

    file: str
    rank: int | None = None

    @property
    def order(self) -> tuple[bool, int, str]:
        """Sorts by rank, and files without one behind those with one."""
        return self.rank is None, self.rank or 0, self.file


class FleetRow(Struct, frozen=True):
    """What one file says. Every figure but `steps` is per step, and None where it was not measured."""

    at: FleetFile
    steps: int
    steps_found: bool
    step_ns: float | None
    copies: float | None
    bytes_moved: float | None
    duration_ns: float | None
    share: float | None
    share_of: str
    layout_kernels: float | None
    """How many device kernels only change layout."""
    layout_kernels_ns: float | None
    layout_kernels_share: float | None
    """Of kernel-busy time."""
    errors: int
    """Findings of severity `error`."""
    warnings: int
    over_budget: tuple[str, ...] = ()
    """Which limits are not kept, a line each."""


FleetFigure = Literal["step_ns", "copies", "bytes_moved", "duration_ns", "share", "layout_kernels_share"]
"""Names of figures of a `FleetRow`."""


class Spread(Struct, frozen=True):
    """How one figure is spread over the files."""

    measured: int
    """In how many files."""
    median: float
    least: float
    least_at: FleetFile
    most: float
    most_at: FleetFile


class Outlier(Struct, frozen=True):
    """A file whose figure is further from the median of the files than `tolerance`."""

    at: FleetFile
    figure: FleetFigure
    value: float
    median: float
    tolerance: float


class FleetFinding(Struct, frozen=True):
    """Equal findings of several files as one, worded and placed as in the file where it costs most."""

    code: str
    title: str
    severity: Severity
    """The worst of any file."""
    message: str
    count: int
    """The most of any file."""
    site: Site
    advice: str | None
    inferred: bool
    fingerprint: str
    files: int
    """How many files have it."""
    first_files: tuple[FleetFile, ...]
    """Eight of them at most, the first by rank."""
    mean: Cost
    """Per step, over the files that have it; time and share over those of them that measured it."""
    most: Cost
    """Per step, in the file where it costs most."""
    most_at: FleetFile


class FleetFailure(Struct, frozen=True):
    """A file that could not be read, and why."""

    at: FleetFile
    message: str


class FleetNote(Struct, frozen=True):
    """A note, and how many files have it."""

    text: str
    files: int


class Fleet(Struct, frozen=True):
    """What the files of many ranks say, each and together."""

    ok: bool
    """No error and no warning in any file that could be read."""
    findings: tuple[FleetFinding, ...]
    figures: dict[FleetFigure, Spread]
    """What no file measured is left out."""
    outliers: tuple[Outlier, ...]
    rows: tuple[FleetRow, ...]
    failures: tuple[FleetFailure, ...]
    notes: tuple[FleetNote, ...]
    environment: dict[str, dict[str, int]]
    """For each fact its values, and in how many files they are so."""
    min_share: float
    schema_version: int = SCHEMA_VERSION

    @property
    def listed(self) -> tuple[FleetFinding, ...]:
        """The findings that are not too small to list in every file."""
        return tuple(finding for finding in self.findings if not self._is_small(finding))

    def _is_small(self, finding: FleetFinding) -> bool:
        share = finding.most.share
        return finding.severity == "note" and share is not None and finding.most.copies > 0 and share < self.min_share
