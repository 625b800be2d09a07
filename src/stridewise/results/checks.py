"""What `check` found: of an operator, how it treats layouts; of live objects, what will go wrong with them."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Finding
from stridewise.results.schema import SCHEMA_VERSION

OpVerdict = Literal[
    "honours strides",
    "raises",
    "does nothing",
    "wrong values",
    "writes outside",
    "crashes",
    "hangs",
    "not comparable",
    "not tried",
]
"""`raises`: an error instead of a result, for a layout of values that it takes when they are contiguous.
`does nothing`: in place or into `out=`, nothing was written. `not comparable`: it gives other values at each call."""

Role = Literal["input", "in place", "out", "parameter", "buffer", "gradient"]
"""`gradient`: what comes into a backward, of an output."""

Aspect = Literal["values", "gradient", "second order", "fake"]
"""What was compared: results, gradients, gradients of gradients, or the strides that a fake kernel promises."""


class Tried(Struct, frozen=True):
    """One layout that an operator was run with, and what came of it."""

    operands: tuple[str, ...]
    """Those that were not contiguous."""
    layouts: tuple[str, ...]
    """Of these, in words: `x[:, ::2], (3, 4) with strides (8, 2)`."""
    aspect: Aspect
    verdict: OpVerdict
    what: str | None
    """Which result was at fault: `output 0`, `gradient of x`, `x`."""
    difference: float | None
    """The largest difference as a share of that result's largest magnitude."""
    message: str | None
    """Of the error that it raised, or how its process ended."""


class Operand(Struct, frozen=True):
    """A tensor that an operator takes, and how it treats that one's layout."""

    name: str
    """As the signature has it, with a path into containers: `x`, `hidden[0]`, `weight`."""
    role: Role
    sizes: tuple[int, ...] | None
    dtype: str | None
    """Both None for the gradients that come in, which have those of the outputs."""
    verdict: OpVerdict
    """The worst over all layouts in which this operand was the only one that was not contiguous."""
    tried: int
    failed: int
    clear: bool | None = None
    """For `raises`: whether the message tells that it is about layout."""


class Snippet(Struct, frozen=True):
    """The smallest layout that shows a fault, as a program to run."""

    finding: str
    """Fingerprint of the finding."""
    layout: str
    code: str


class Conformance(Struct, frozen=True):
    """How an operator treats the layouts of its operands."""

    op: str
    operands: tuple[Operand, ...]
    cases: tuple[Tried, ...]
    """All of them, also those that hold."""
    findings: tuple[Finding, ...]
    snippets: tuple[Snippet, ...]
    contract: str | None
    """A decorator that would keep the layouts out which it can't take; None if it wasn't asked for, or needs none."""
    contract_holds: bool | None
    """Whether the operator passed with that decorator; None if it was not tried."""
    tolerance: str
    """What counts as equal, in words."""
    contained: str
    """How the runs were kept apart from this process, in words."""
    notes: tuple[str, ...]
    environment: dict[str, str]
    interrupted: bool = False
    """Somebody ended it: what stands here is what was tried until then."""
    left: int = 0
    """Runs that were not made, because it was interrupted or its time was over."""
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def compared(self) -> bool:
        """Something that it gives could be compared; else only what it writes, and crashes, were looked at."""
        return any(operand.verdict not in ("not comparable", "not tried") for operand in self.operands)


class Looked(Struct, frozen=True):
    """A part of a program that was looked at, and what was found there, in words."""

    what: str
    """`148 parameters and 53 buffers`, `AdamW, fused`, `DataLoader, 2 batches`."""
    verdict: str
    """`contiguous`, `channels_last`, `2 findings`."""


class Preflight(Struct, frozen=True):
    """What layout will do to a model, its optimizer, its data and its ranks."""

    findings: tuple[Finding, ...]
    looked: tuple[Looked, ...]
    fields: tuple["Field", ...]
    """Of a loader; empty without one."""
    notes: tuple[str, ...]
    environment: dict[str, str]
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)


class Field(Struct, frozen=True):
    """One tensor or array of what a loader yields."""

    path: str
    """Into the batch: `[0]`, `image`, `target.boxes`."""
    sample: str | None
    """Layout of one sample as the dataset gives it, in words; None if it could not be had."""
    batch: str
    """Layout of the batch, in words."""
    view_bytes: int | None
    """Of one sample: of its elements."""
    storage_bytes: int | None
    """Of one sample: of the storage that it holds, all of which a worker sends."""
    copies: int | None
    """That making one batch of samples takes, beyond the one that collate must make; None if not measured."""


class LoaderReport(Struct, frozen=True):
    """What a loader yields, and what its layout costs and loses."""

    findings: tuple[Finding, ...]
    fields: tuple[Field, ...]
    batches: int
    workers: int
    notes: tuple[str, ...]
    environment: dict[str, str]
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)
