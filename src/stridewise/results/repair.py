"""What `fix` found: the edits that were tried, what each came to, and the diff of those that won."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Cost, Edit, Finding, Site
from stridewise.results.schema import SCHEMA_VERSION

Verdict = Literal["won", "no difference", "lost", "refused"]
"""`refused`: it was not timed, or its time does not count, for the reason that stands beside it."""


class Measurement(Struct, frozen=True):
    """A changed program measured against the unchanged one, in turn, in one process. Figures are per step."""

    ratio: float | None
    """Time with the change over time without it, over all pairs; None if it was not timed."""
    low: float | None
    high: float | None
    """The interval that holds the ratio with the confidence that `Repair.confidence` says."""
    pairs: int
    """How many pairs were timed."""
    equal: bool | None
    """Results agree: bit for bit, or within the tolerance. None if they were not compared."""
    difference: float | None
    """The largest difference of any result, as a share of that result's largest magnitude; 0 is bit for bit."""
    verdict: Verdict
    reason: str | None
    """Why it was refused, or what else there is to say of the verdict."""
    copies_before: float | None
    copies_after: float | None
    """Layout copies a step: those of the tax."""
    tax_before: Cost | None
    tax_after: Cost | None
    peak_before: int | None
    peak_after: int | None
    """Bytes that a step holds at its peak, beyond what is there when it begins."""
    kept_before: int | None = None
    kept_after: int | None = None
    """Bytes that what a step returns keeps when it has ended."""
    unseen: tuple[str, ...] = ()
    """Results that could not be compared, in words."""
    layouts: tuple[str, ...] = ()
    """What leaves the program in another layout than before, in words."""


class Trial(Measurement, frozen=True, kw_only=True):
    """One candidate edit."""

    candidate: str
    """Its kind, such as `copy-at-origin`."""
    what: str
    """What it does, in a few words that begin with a verb."""
    answers: str
    """The case of advice that is often given which it answers, and corrects."""
    site: Site
    findings: tuple[str, ...]
    """Fingerprints of the findings that it is to mend."""
    edits: tuple[Edit, ...]
    kept: bool
    """It is part of the diff: it won, and adds to the other winners."""
    forecast: float | None = None
    """The ratio that costs of single operators let expect; None unless it comes from such costs."""
    forecast_off: str | None = None
    """In words, if that was wrong by more than a fifth: by how much, and where most of it is."""


class EditedFile(Struct, frozen=True):
    """A file that the diff changes."""

    file: str
    sha256: str
    """Of its content when the trials ran."""
    installed: bool
    """It belongs to an installed package, or lies outside the project: it gets a patch file, and is never written."""
    is_cell: bool = False
    """It is a cell of a notebook: it has no file, and is changed there."""


class Untried(Struct, frozen=True):
    """A candidate edit that nobody came to: the time was over, or the run was interrupted."""

    candidate: str
    what: str
    site: Site


class Repair(Struct, frozen=True):
    """What was tried, and what of it is worth an edit."""

    findings: tuple[Finding, ...]
    """Of the unchanged program, and those that only trials can tell: SW104 and SW109."""
    trials: tuple[Trial, ...]
    together: Measurement | None
    """All that are kept at once; None if nothing won."""
    diff: str
    """Unified; empty if nothing won, or nothing that won is an edit of source."""
    files: tuple[EditedFile, ...]
    step_ns: float | None
    """Median time of a step of the unchanged program."""
    confidence: float
    tolerance: str
    """What counts as equal, in words."""
    notes: tuple[str, ...]
    environment: dict[str, str]
    left: tuple[Finding, ...] | None = None
    """Those of the program with all that is kept in place; None if nothing is, or it was not recorded so."""
    format_lost: tuple[Finding, ...] = ()
    """Where a model that was made channels_last for a trial loses that format (SW106)."""
    only: tuple[str, ...] = ()
    """The kinds that were asked for, as they were named; empty for all."""
    untried: tuple[Untried, ...] = ()
    interrupted: bool = False
    """Somebody ended it before its time: what stands here is what was tried until then."""
    schema_version: int = SCHEMA_VERSION

    @property
    def won(self) -> tuple[Trial, ...]:
        """The trials that are kept."""
        return tuple(trial for trial in self.trials if trial.kept)

    @property
    def ok(self) -> bool:
        """No edit would win."""
        return not self.won


class Progress(Struct, frozen=True):
    """How far a run of `fix` has come."""

    phase: Literal["recording", "replaying", "trying", "together"]
    done: int = 0
    total: int = 0
    what: str | None = None
    """The candidate that is being tried."""
    ratio: float | None = None
    """The latest of the trial that goes on."""
