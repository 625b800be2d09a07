"""The table of implementations: equal executions of the whole recording in one row."""

from collections import defaultdict
from collections.abc import Hashable

from stridewise.analysis.case import Case
from stridewise.analysis.paths.find import Execution
from stridewise.analysis.sites import common_site, place_of
from stridewise.findings import Site
from stridewise.results import PathRow


def path_rows(case: Case) -> tuple[PathRow, ...]:
    """One row for executions that are equal in all that is told of them, the longest first; unmeasured ones last."""
    groups: dict[Hashable, list[tuple[Execution, Site | None]]] = defaultdict(list)
    for execution in case.executions:
        site = _site(case, execution)
        key = (
            execution.family,
            execution.name,
            place_of(site) if site is not None else None,
            execution.backend,
            execution.dtype,
            execution.autocast,
            execution.operands,
            execution.missed and execution.missed.text,
            execution.evidence,
            execution.inferred,
        )
        groups[key].append((execution, site))
    rows = [_row(group) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: (-(row.duration_ns or 0), row.duration_ns is None)))


def _site(case: Case, execution: Execution) -> Site | None:
    if execution.site_op >= 0:
        site: Site | None = case.site_of_op(execution.site_op)
    elif execution.event >= 0:
        site = case.place_of_event(case.trace.device_events[execution.event])[1]
    else:
        site = None
    return site if site is not None and site != Site() else None


def _row(group: list[tuple[Execution, Site | None]]) -> PathRow:
    first = group[0][0]
    sites = [site for _, site in group if site is not None]
    durations = [execution.duration_ns for execution, _ in group if execution.duration_ns is not None]
    return PathRow(
        family=first.family,
        op=first.name,
        site=common_site(sites) if sites else None,
        backend=first.backend,
        dtype=first.dtype,
        autocast=first.autocast,
        operands=first.operands,
        missed=first.missed.text if first.missed else None,
        evidence=first.evidence,
        count=len(group),
        duration_ns=sum(durations) if durations else None,
        inferred=first.inferred,
    )
