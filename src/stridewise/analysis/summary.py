"""What is kept of a file's report when many files are read: small, and the same whatever order files are merged in."""

import re
from collections.abc import Iterable
from heapq import nsmallest

import msgspec
from msgspec import Struct

from stridewise.findings import Cost, Finding, Severity
from stridewise.results import (
    FleetFailure,
    FleetFile,
    FleetFinding,
    FleetNote,
    FleetRow,
    LayoutKernels,
    Report,
)

_FIRST_FILES = 8
_MOST_NOTES = 20
"""Kept of what may differ from file to file: texts of notes, and values of each fact."""
_SEVERITIES: tuple[Severity, ...] = ("note", "warning", "error")

_UNIT = 10**9
"""Sums are whole numbers of billionths: adding floats gives other digits in another order."""

_RANK = re.compile(r"(?:rank|worker)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NUMBERED = re.compile(r"_(\d{1,6})\.\D")
_NO_RANK = re.compile(r"(?:step|iter|iteration|epoch)s?_\d+\.\D", re.IGNORECASE)


class Sums(Struct, frozen=True):
    """A finding's costs added up over files, in billionths."""

    copies: int = 0
    bytes_moved: int = 0
    sized: int = 0
    """In how many files its bytes were measured; and so on."""
    duration_ns: int = 0
    timed: int = 0
    share: int = 0
    shared: int = 0


class Found(Struct, frozen=True):
    """A finding over files; `finding.mean` is left empty, since only `sums` can be merged."""

    finding: FleetFinding
    sums: Sums


class Summary(Struct, frozen=True):
    """What is kept of one file, or of many. `Summary()` is what no file says."""

    rows: tuple[FleetRow, ...] = ()
    failures: tuple[FleetFailure, ...] = ()
    findings: tuple[Found, ...] = ()
    notes: tuple[FleetNote, ...] = ()
    environment: dict[str, dict[str, int]] = {}


def summarize(report: Report, file: str, over_budget: tuple[str, ...] = ()) -> Summary:
    """What is kept of a report; `file` is the name that it has in everything that is shown.

    The rank is what the trace says, else what the file's name does (`rank3`, `worker_3`, `trace_3.json`).
    """
    recorded = report.rank
    at = FleetFile(file, rank_in(file) if recorded is None else recorded)
    found: dict[str, Found] = {}
    for finding in report.findings:
        one = _found(finding, at)
        found.setdefault(_key(one), one)
    return Summary(
        rows=(_row(report, at, over_budget),),
        findings=tuple(found[key] for key in sorted(found)),
        notes=tuple(FleetNote(text, 1) for text in sorted(set(report.notes))[:_MOST_NOTES]),
        environment={key: {report.environment[key]: 1} for key in sorted(report.environment)},
    )


def failure(file: str, message: str) -> Summary:
    """What is kept of a file that could not be read."""
    return Summary(failures=(FleetFailure(FleetFile(file, rank_in(file)), message),))


def rank_in(file: str) -> int | None:
    """The rank that a file's name, or else the nearest folder's, tells; None where it tells none."""
    *folders, name = re.split(r"[\\/]", file)
    for part in (name, *reversed(folders)):
        if ranks := _RANK.findall(part):
            return int(ranks[-1])
    numbers = [] if _NO_RANK.search(name) else _NUMBERED.findall(name)
    return int(numbers[-1]) if numbers else None


def merge(summaries: Iterable[Summary]) -> Summary:
    """One summary of all. Associative, commutative, and exact, for summaries of files that all differ.

    Its size grows by a row a file (some 300 bytes), and beyond that with the number of findings that differ.
    """
    rows: list[FleetRow] = []
    failures: list[FleetFailure] = []
    found: dict[str, list[Found]] = {}
    notes: dict[str, int] = {}
    environment: dict[str, dict[str, int]] = {}
    for summary in summaries:
        rows += summary.rows
        failures += summary.failures
        for one in summary.findings:
            found.setdefault(_key(one), []).append(one)
        for note in summary.notes:
            notes[note.text] = notes.get(note.text, 0) + note.files
        for key, values in summary.environment.items():
            counts = environment.setdefault(key, {})
            for value, files in values.items():
                counts[value] = counts.get(value, 0) + files
    return Summary(
        rows=tuple(sorted(rows, key=lambda row: row.at.order)),
        failures=tuple(sorted(failures, key=lambda failed: failed.at.order)),
        findings=tuple(_together(found[key]) for key in sorted(found)),
        # The first by text, and not the commonest: one that was dropped on the way would have lost its count.
        notes=tuple(FleetNote(text, notes[text]) for text in nsmallest(_MOST_NOTES, notes)),
        environment={
            key: {value: environment[key][value] for value in nsmallest(_MOST_NOTES, environment[key])}
            for key in sorted(environment)
        },
    )


# ------------------------------------------------------------------------------------------------------------ one file


def _row(report: Report, at: FleetFile, over_budget: tuple[str, ...]) -> FleetRow:
    totals = report.totals
    kernels: LayoutKernels | None = totals.layout_kernels
    severities = [finding.severity for finding in report.findings]
    return FleetRow(
        at=at,
        steps=totals.steps,
        steps_found=totals.steps_found,
        step_ns=totals.step_ns,
        copies=totals.copies,
        bytes_moved=totals.bytes_moved,
        duration_ns=totals.duration_ns,
        share=totals.share,
        share_of=totals.share_of,
        layout_kernels=kernels.count if kernels else None,
        layout_kernels_ns=kernels.duration_ns if kernels else None,
        layout_kernels_share=kernels.share if kernels else None,
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        over_budget=over_budget,
    )


def _found(finding: Finding, at: FleetFile) -> Found:
    cost = finding.cost
    kept = FleetFinding(
        code=finding.code,
        title=finding.title,
        severity=finding.severity,
        message=finding.message,
        count=finding.count,
        site=finding.site,
        advice=finding.advice,
        inferred=finding.inferred,
        fingerprint=finding.fingerprint,
        files=1,
        first_files=(at,),
        mean=Cost(),
        most=cost,
        most_at=at,
    )
    sums = Sums(
        copies=round((cost.copies or 0) * _UNIT),
        bytes_moved=round((cost.bytes_moved or 0) * _UNIT),
        sized=int(cost.bytes_moved is not None),
        duration_ns=round((cost.duration_ns or 0) * _UNIT),
        timed=int(cost.duration_ns is not None),
        share=round((cost.share or 0) * _UNIT),
        shared=int(cost.share is not None),
    )
    return Found(kept, sums)


def _key(found: Found) -> str:
    finding = found.finding
    return f"{finding.code} {finding.fingerprint or finding.site.where}"


# -------------------------------------------------------------------------------------------------------- many of them


def _together(several: list[Found]) -> Found:
    if len(several) == 1:
        return several[0]
    findings = [one.finding for one in several]
    costliest = min(findings, key=_by_cost)
    files = [at for finding in findings for at in finding.first_files]
    merged = msgspec.structs.replace(
        costliest,
        severity=max((finding.severity for finding in findings), key=_SEVERITIES.index),
        count=max(finding.count for finding in findings),
        inferred=any(finding.inferred for finding in findings),
        files=sum(finding.files for finding in findings),
        first_files=tuple(nsmallest(_FIRST_FILES, files, key=lambda at: at.order)),
    )
    columns = zip(*(msgspec.structs.astuple(one.sums) for one in several), strict=True)
    return Found(merged, Sums(*map(sum, columns)))


def _by_cost(finding: FleetFinding) -> tuple[object, ...]:
    cost = finding.most
    # What was not measured is less than 0.
    measured = [-1 if figure is None else figure for figure in (cost.duration_ns, cost.bytes_moved, cost.copies)]
    return *(-figure for figure in measured), finding.most_at.order


def mean_of(found: Found) -> Cost:
    """What a finding costs in a step, on average over the files that have it."""
    sums, files = found.sums, found.finding.files
    if files == 1:
        return found.finding.most
    return Cost(
        copies=_mean(sums.copies, files) or 0,
        bytes_moved=_mean(sums.bytes_moved, sums.sized),
        duration_ns=_mean(sums.duration_ns, sums.timed),
        share=_mean(sums.share, sums.shared),
    )


def _mean(total: int, files: int) -> float | None:
    return total / (files * _UNIT) if files else None
