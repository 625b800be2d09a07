"""What a recording says: findings, figures, and a few named tables."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Cost, Finding, Site
from stridewise.results.autocast import AutocastUse
from stridewise.results.compiled import Compiled
from stridewise.results.schema import SCHEMA_VERSION
from stridewise.results.timeline import Timeline

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
    """Of kernel-busy time: the time of all kernels, added up over streams and devices."""
    share_of_step: float | None = None
    """Of a step's time on the CPU or from its first kernel to its last, whichever is longer."""


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
    unseen: tuple[Kind, ...] = ()
    """Kinds of copies that there may be and that the recording could not see: `library`, inside oneDNN."""
    layout_kernels: LayoutKernels | None = None
    """None where no kernel of a device was recorded."""
    whole: bool = True
    """False when the recording ended before its one step, or what counts as one, did: these are figures of a part."""


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
    """The time of its kernels, added up."""
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
    """In that step. Of a module that ran in none, all that were recorded."""
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
        return finding.severity == "note" and share is not None and bool(finding.cost.copies) and share < self.min_share


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
    rank: int | None = None
    """Of the process in its job, if the recording tells."""
    streams: tuple[StreamRow, ...] = ()
    paths: tuple[PathRow, ...] = ()
    autocast: AutocastUse | None = None
    """None where autocast was not used."""
    compiled: Compiled | None = None
    """What torch.compile did meanwhile; None if it was not watched."""
    timeline: Timeline | None = None
    """None where no layouts of calls were recorded, or it was not asked for."""
    left_out: int = 0
    """How many findings are not among these, because others were selected or these codes ignored."""
    schema_version: int = SCHEMA_VERSION

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The findings that are not folded."""
        return tuple(finding for finding in self.findings if not self.folded.holds(finding))

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings) and (
            self.compiled is None or self.compiled.ok
        )


class ScriptOutcome(Struct, frozen=True):
    """How a script that was run and recorded ended."""

    report: Report | None
    """None if nothing was recorded."""
    exit_code: int
    """The script's own; 130 after a KeyboardInterrupt."""
    message: str | None
    """What could not be recorded or saved, and why."""
    compiled: Compiled | None = None
    """What torch.compile did; None if it was not watched."""
    saved: bool = True
    """False if the recording could not be written to where it was to be saved."""
