"""Two recordings, or many."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from stridewise import results
from stridewise.api.codes import wanted_budget, wanted_codes
from stridewise.api.recordings import MIN_SHARE, analyze
from stridewise.api.shown import Shown, written
from stridewise.config import Budget, parse_share, project_root
from stridewise.errors import InputError, StridewiseError, UsageError
from stridewise.recording.handle import Recording


class Diff(Shown, results.Diff, frozen=True):
    """A comparison that shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import diff

        diff.render(self, out, format="text")

    def to_json(self) -> str:
        """The comparison as `stridewise diff --format json` prints it."""
        from stridewise.report import diff

        return written(lambda out: diff.render(self, out, format="json"))


def diff(
    old: results.Report | Recording | str | os.PathLike[str],
    new: results.Report | Recording | str | os.PathLike[str],
    *,
    tolerance: float | str = 0.0,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Diff:
    """What got worse, and what better, from one recording to another. Needs no torch.

    Each is a report, a recording, or a file: of a recording, of a trace, or of a report as JSON. `.ok` says whether
    copies and bytes a step grew by no more than `tolerance`, a share of what they were, and no hazard came up. Time is
    not judged. `select` and `ignore` are codes or their beginnings: what their findings cost is then what is compared.
    Raises InputError if a file can't be read as any of these.
    """
    from stridewise.analysis.diff import compare

    select, ignore = wanted_codes(select, ignore)
    tolerance = parse_share(tolerance) if isinstance(tolerance, str) else tolerance
    if not 0 <= tolerance < math.inf:
        raise UsageError(f"diff() was given a tolerance of {tolerance!r}.", expected="Expected: a share such as 0.05.")
    before, after = _report_of(old), _report_of(new)
    found = compare(before, after, tolerance=tolerance, min_share=min_share, select=select, ignore=ignore)
    return Diff(*msgspec.structs.astuple(found))


def _report_of(source: results.Report | Recording | str | os.PathLike[str]) -> results.Report:
    if isinstance(source, results.Report):
        return source
    if isinstance(source, Recording):
        return analyze(source, timeline=False)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            f"diff() was given {type(source).__name__}.", expected="Expected: a report, a recording, or a file."
        )
    from stridewise.report import saved

    try:
        return saved.load(source) or analyze(source, timeline=False)
    except InputError as error:  # what else it says is about traces only
        raise InputError(error.given) from None


class Fleet(Shown, results.Fleet, frozen=True):
    """What many files say; it shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import fleet

        fleet.render(self, out, format="text")

    def to_json(self) -> str:
        """The fleet as `stridewise trace --format json` prints it."""
        from stridewise.report import fleet

        return written(lambda out: fleet.render(self, out, format="json"))


def analyze_fleet(
    files: Iterable[str | os.PathLike[str]],
    *,
    cluster: Any = None,
    workers: int | None = None,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: str | os.PathLike[str] | None = None,
    budget: Budget | str = "",
    progress: Callable[[int, int], object] | None = None,
) -> Fleet:
    """What the files of many ranks say, each and together. Needs no torch.

    `files` are files, folders, globs, and URLs that fsspec opens. `cluster` is the address of a Dask scheduler, whose
    workers then read the files, or a `distributed.Client`; connect only to a cluster that you trust. Without one, many
    files are read in as many processes of this machine as `workers` says, else as it has cores; 1 is this process.
    `progress` is called with the number of files that are read, and of all. The other options are `analyze`'s; `budget`
    is held against each file.

    A file that can't be read is in `failures`. Raises InputError if none can be read, and UsageError if there is none,
    or the cluster can't be reached or is lost.
    """
    from stridewise import fleet
    from stridewise.analysis.fleet import assemble_fleet
    from stridewise.analysis.kernel_names import project_pattern

    select, ignore = wanted_codes(select, ignore)
    given = [files] if isinstance(files, (str, os.PathLike)) else files
    found = fleet.expand(given)
    for pattern, cause in (kernel_patterns or {}).items():
        project_pattern(pattern, cause)
    options = fleet.Options(
        min_share=min_share,
        select=select,
        ignore=ignore,
        kernel_patterns=dict(kernel_patterns or {}),
        source_root=os.fspath(source_root or project_root()),
        budget=str(wanted_budget(budget, select, ignore)),
    )
    summary, notes = fleet.read_fleet(
        found,
        options,
        cluster=cluster,
        workers=workers,
        progress=None if progress is None else lambda read: progress(read, len(found)),
    )
    if not summary.rows:
        raise _nothing_read(summary.failures)
    whole = assemble_fleet(summary, min_share=min_share, notes=notes)
    return Fleet(*msgspec.structs.astuple(whole))


def _nothing_read(failures: Sequence[results.FleetFailure]) -> StridewiseError:
    if not failures:
        return UsageError("No files were given.")
    first = failures[0]
    if len(failures) == 1:
        return InputError(first.message)
    return InputError(f"None of {len(failures)} files could be read.", expected=f"The first: {first.message}")
