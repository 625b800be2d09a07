"""What `stridewise trace` yields for the files of many ranks."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Cost, Severity, Site
from stridewise.results.schema import SCHEMA_VERSION


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
        return finding.severity == "note" and share is not None and bool(finding.most.copies) and share < self.min_share
