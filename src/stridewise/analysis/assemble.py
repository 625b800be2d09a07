"""The report of a recording."""

from collections.abc import Collection

from stridewise.analysis.case import Case
from stridewise.analysis.charge import charge
from stridewise.analysis.copies import step_of
from stridewise.analysis.modules import module_rows
from stridewise.analysis.rules import all_rules
from stridewise.analysis.tally import Tally
from stridewise.findings import Cost, Finding
from stridewise.recording.model import Trace
from stridewise.results import Copy, Folded, Kernel, Report


def analyze_trace(
    trace: Trace,
    *,
    min_share: float,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Report:
    """Everything that a recording says. Findings under `min_share` of a step are notes, and counted as folded."""
    case = Case(trace)
    tally = Tally(case)
    findings, charged = charge(case, all_rules(), tally, min_share)
    shown = tuple(finding for finding in findings if _is_wanted(finding.code, select, ignore))
    return Report(
        findings=shown,
        totals=tally.totals(),
        folded=_folded(shown, min_share),
        copies=tuple(_row(case, position, charged) for position in range(len(case.copies))),
        kernels=_kernels(case),
        modules=module_rows(case),
        notes=tuple(case.notes),
        environment=trace.environment,
    )


def _is_wanted(code: str, select: Collection[str] | None, ignore: Collection[str] | None) -> bool:
    if ignore and code.startswith(_codes(ignore)):
        return False
    return not select or code.startswith(_codes(select))


def _codes(given: Collection[str]) -> tuple[str, ...]:
    return tuple(code.upper() for code in ([given] if isinstance(given, str) else given))


def _folded(findings: Collection[Finding], min_share: float) -> Folded:
    small = [finding.cost for finding in findings if Folded(0, min_share, Cost()).holds(finding)]
    together = Cost(
        copies=sum(cost.copies for cost in small),
        bytes_moved=sum(cost.bytes_moved for cost in small),
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
        taxed=case.reasons[position] is None,
        reason=case.reasons[position],
        finding=charged.get(position),
    )


def _kernels(case: Case) -> tuple[Kernel, ...]:
    trace = case.trace
    starts = [step.start_ns for step in trace.steps]
    rows = []
    for event in trace.device_events:
        if event.category.lower() != "kernel":
            continue
        op = trace.ops[event.op] if event.op >= 0 else None
        launched = op.start_ns if op else event.start_ns
        rows.append(
            Kernel(
                name=event.name,
                duration_ns=event.duration_ns,
                device=event.device,
                stream=event.stream,
                op=op.name if op else None,
                site=case.site(op.call) if op and op.call >= 0 else None,
                step=step_of(trace, starts, launched),
            )
        )
    return tuple(rows)
