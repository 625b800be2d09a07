"""What `lint` found: problems in source, what was mended of them, and what could not be read."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from stridewise.findings import Finding, Safety
from stridewise.results.schema import SCHEMA_VERSION


class Unread(Struct, frozen=True):
    """A file that was not linted, or a cell of a notebook."""

    file: str
    line: int | None
    """Where it stops being Python, counted from 1; None if it could not be read at all."""
    reason: str
    """A sentence that names the file, and the line."""
    cell: int | None = None
    """The number of the cell, if the rest of a notebook was linted."""


class Group(Struct, frozen=True):
    """Findings of one code at equal expressions, as copies of code have them."""

    code: str
    title: str
    expression: str
    """With single blanks."""
    findings: tuple[int, ...]
    """Their positions in `LintRun.findings`."""


class CodeCount(Struct, frozen=True):
    """The findings of one code."""

    code: str
    title: str
    count: int
    fixes: dict[Safety, int]
    """How many of them have a fix, by its safety."""


class LintStatistics(Struct, frozen=True):
    """What `--statistics` tells of a run."""

    statistics: tuple[CodeCount, ...]
    """The codes that were found, most first."""
    repeated: tuple[Group, ...]
    """Those that more than one finding is of."""
    files: int
    lines: int
    unread: tuple[Unread, ...]
    suppressed: int
    schema_version: int = SCHEMA_VERSION


class Mended(Struct, frozen=True):
    """Fixes that were made in one file, or that `--diff` shows."""

    file: str
    fixes: dict[str, int]
    """How many by code."""


class Refused(Struct, frozen=True):
    """A file whose fixes were not written."""

    file: str
    reason: str


class LintRun(Struct, frozen=True):
    """What the source rules say of some files."""

    findings: tuple[Finding, ...]
    """By file and place. With `fixed`, those that are left."""
    files: int
    """How many were linted, those that were not changed since a run before included."""
    lines: int
    unread: tuple[Unread, ...] = ()
    suppressed: int = 0
    """Findings that a comment or `per-file-ignores` left out."""
    fixed: tuple[Mended, ...] = ()
    refused: tuple[Refused, ...] = ()
    diff: str = ""
    """Unified: what the fixes change."""
    written: bool = False
    """Whether the fixes are in the files."""
    share_of: str | None = None
    """What shares of costs are of, if a recording was given."""
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning, and every file was read."""
        return not self.unread and all(finding.severity == "note" for finding in self.findings)

    @property
    def statistics(self) -> Mapping[str, int]:
        """How many findings each code has, most first."""
        counts = Counter(finding.code for finding in self.findings)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def groups(self) -> tuple[Group, ...]:
        """Findings at equal expressions together, in the order of the first of each."""
        found: dict[tuple[str, str], list[int]] = {}
        for position, finding in enumerate(self.findings):
            expression = " ".join((finding.site.expression or "").split())
            found.setdefault((finding.code, expression or finding.site.where), []).append(position)
        return tuple(
            Group(code, self.findings[positions[0]].title, expression, tuple(positions))
            for (code, expression), positions in found.items()
        )
