"""The report of a recording."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from stridewise.analysis.annotate import annotations
from stridewise.analysis.autocast import autocast_use
from stridewise.analysis.case import Case
from stridewise.analysis.charge import charge
from stridewise.analysis.kernel_names import project_pattern
from stridewise.analysis.kernel_tables import kernels, layout_kernels, streams
from stridewise.analysis.modules import module_rows
from stridewise.analysis.notes import notes
from stridewise.analysis.path_table import path_rows
from stridewise.analysis.rules import all_rules
from stridewise.analysis.source_tree import SourceTree
from stridewise.analysis.tally import Tally
from stridewise.analysis.timeline import timeline as timeline_of
from stridewise.config import is_wanted
from stridewise.findings import Cost, Finding
from stridewise.recording.trace import Trace
from stridewise.results import Copy, Folded, Report


def analyze_trace(
    trace: Trace,
    *,
    min_share: float,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: Path | None = None,
    paths: bool = False,
    timeline: bool = False,
) -> Report:
    """Everything that a recording says. Findings under `min_share` of a step are notes, and counted as folded.

    `kernel_patterns` are regular expressions for names of kernels that change layout, each with its cause. Lines of
    source that the recording does not hold are read below `source_root`. With `paths` the report says which
    implementation ran each operator, with `timeline` what each call of a step did. Raises UsageError for a pattern that
    is none.
    """
    case = _case(trace, kernel_patterns, source_root)
    return report_of(case, min_share=min_share, select=select, ignore=ignore, paths=paths, timeline=timeline)


def report_of(
    case: Case,
    *,
    min_share: float,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    paths: bool = False,
    timeline: bool = False,
) -> Report:
    """The report of a case: copies have the same positions in both."""
    trace, tally = case.trace, Tally(case)
    findings, charged = charge(case, all_rules(), tally, min_share)
    shown = tuple(finding for finding in findings if is_wanted(finding.code, select, ignore))
    return Report(
        findings=shown,
        totals=msgspec.structs.replace(tally.totals(), layout_kernels=layout_kernels(case, tally)),
        folded=_folded(shown, min_share),
        copies=tuple(_row(case, position, charged) for position in range(len(case.copies))),
        kernels=kernels(case),
        modules=module_rows(case),
        notes=notes(case),
        environment=trace.environment,
        rank=trace.rank,
        streams=streams(case),
        paths=path_rows(case) if paths else (),
        autocast=autocast_use(case),
        timeline=timeline_of(case) if timeline else None,
        left_out=len(findings) - len(shown),
    )


def annotate_trace(
    trace: Trace,
    *,
    min_share: float,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: Path | None = None,
) -> Iterator[bytes]:
    """Events that mark a trace's layout copies and their origins, as JSON."""
    case = _case(trace, kernel_patterns, source_root)
    findings, charged = charge(case, all_rules(), Tally(case), min_share)
    named = {finding.fingerprint: finding for finding in findings}
    yield from annotations(case, {position: named[fingerprint] for position, fingerprint in charged.items()})


def _case(trace: Trace, kernel_patterns: Mapping[str, str] | None, source_root: Path | None) -> Case:
    patterns = tuple(project_pattern(pattern, cause) for pattern, cause in (kernel_patterns or {}).items())
    return Case(trace, patterns, SourceTree(source_root) if source_root is not None else None)


def _folded(findings: Collection[Finding], min_share: float) -> Folded:
    small = [finding.cost for finding in findings if Folded(0, min_share, Cost()).holds(finding)]
    together = Cost(
        copies=sum(cost.copies or 0 for cost in small),
        bytes_moved=sum(cost.bytes_moved or 0 for cost in small),
        duration_ns=sum(cost.duration_ns or 0 for cost in small),
        share=sum(cost.share or 0 for cost in small),
    )
    return Folded(len(small), min_share, together)


def _row(case: Case, position: int, charged: dict[int, str]) -> Copy:
    copy = case.copies[position]
    return Copy(
        kind=copy.kind,
        change=copy.change,
        cast=copy.cast,
        op=copy.top_op,
        call=case.function(copy.call) if copy.call >= 0 else None,
        site=case.site_of_copy(position),
        step=copy.step,
        sizes=copy.sizes,
        source_strides=copy.source_strides,
        strides=copy.strides,
        source_dtype=copy.source_dtype,
        dtype=copy.dtype,
        bytes_moved=copy.bytes_moved,
        bytes_written=copy.bytes_written,
        duration_ns=copy.duration_ns,
        gb_per_s=copy.bytes_moved / copy.duration_ns if copy.duration_ns and copy.bytes_moved is not None else None,
        backward=copy.backward,
        inferred=copy.inferred,
        taxed=case.reasons[position] is None and copy.step is not None,
        reason=case.reasons[position] or ("outside the steps" if copy.step is None else None),
        finding=charged.get(position),
    )
