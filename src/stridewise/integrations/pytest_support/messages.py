"""What a test says that fails because of its layout: short, with the lines that cause it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from stridewise.config import Budget
from stridewise.errors import StridewiseError
from stridewise.findings import NOT_MEASURED, Finding
from stridewise.integrations.pytest_support.known import Change, Key, Known
from stridewise.report.text import one_line, shorten
from stridewise.results import Report, numbers

_MOST_FINDINGS = 6
_MOST_PLACES = 4
_MOST_KNOWN = 10
_MOST_CELLS = 100


def over_budget(budget: Budget, exceeded: Sequence[str], report: Report) -> str:
    """Which limits are not kept, and the findings that cost most."""
    causes = sorted(_causes(budget, exceeded, report), key=lambda each: -(each.cost.bytes_moved or 0))
    return "\n".join((f"over the layout budget {budget}", *_indented(map(one_line, exceeded)), *culprits(causes)))


def culprits(findings: Sequence[Finding]) -> Iterator[str]:
    """Findings with their lines, a few lines each; the first few of many."""
    for finding in findings[:_MOST_FINDINGS]:
        yield from culprit(finding)
    if len(findings) > _MOST_FINDINGS:
        yield f"… and {numbers.count(len(findings) - _MOST_FINDINGS, 'more finding')}"


def culprit(finding: Finding, changed: str = "") -> Iterator[str]:
    """One finding: its place and code, the expression, what it costs, and what to do."""
    site = finding.site
    where = site.where if site.file is not None else site.module or "the whole test"
    yield one_line(f"{where}: {finding.code} {finding.title}{changed and f', {changed}'}")
    if site.expression:
        yield f"    {shorten(one_line(site.expression), _MOST_CELLS)}"
    if finding.cost != NOT_MEASURED and finding.cost.copies:
        yield f"    {numbers.cost(finding.cost)}{_paid(finding)}"
    else:
        yield f"    {one_line(finding.message)}"
    if finding.advice:
        yield f"    {one_line(finding.advice)}"


def worse(
    name: str, change: Change, groups: Mapping[Key, Sequence[Finding]], before: Collection[Known], how: str
) -> str:
    """What is new or has grown since the baseline was written, with its lines, and what was known."""
    lines = [f"layout got worse than {name} knows"]
    rows = [(each.key, "new") for each in change.new] + [(now.key, _growth(old, now)) for old, now in change.grown]
    for key, changed in rows[:_MOST_FINDINGS]:
        for finding in groups[key]:
            lines += culprit(finding, changed)
    if len(rows) > _MOST_FINDINGS:
        lines.append(f"… and {numbers.count(len(rows) - _MOST_FINDINGS, 'more finding')}")
    if before:
        lines.append("known before:")
        lines += [f"    {shorten(one_line(str(each)), _MOST_CELLS)}" for each in [*before][:_MOST_KNOWN]]
        if len(before) > _MOST_KNOWN:
            lines.append(f"    … and {len(before) - _MOST_KNOWN} more")
    return "\n".join((*lines, f"if it has to be so: {how}"))


def nested(error: StridewiseError) -> str:
    """The one line for a test that can't be recorded, because a profiler is running."""
    return f"layout can't be recorded: {' '.join(str(error).split())}"


def _causes(budget: Budget, exceeded: Sequence[str], report: Report) -> Iterable[Finding]:
    forbidden = budget.forbid if any(line.startswith("forbid:") for line in exceeded) else ()
    costly = any(not line.startswith("forbid:") for line in exceeded)
    compiled = report.compiled.findings if report.compiled is not None else ()
    for finding in (*report.findings, *compiled):
        if (costly and finding.cost.copies) or (forbidden and finding.code.startswith(forbidden)):
            yield finding


def _growth(old: Known, now: Known) -> str:
    if now.copies > old.copies:
        return f"{numbers.count(now.copies, 'copy', 'copies')} where {numbers.figure(old.copies)} were known"
    if now.bytes > old.bytes:
        return f"{now.bytes:,} B where {old.bytes:,} B were known"
    return f"{numbers.count(now.count, 'time')} where {old.count} were known"


def _paid(finding: Finding) -> str:
    """Where the copies are made, if that is elsewhere."""
    places = [payer.site.where for payer in finding.payers if payer.site.file is not None]
    places = [place for place in dict.fromkeys(places) if place != finding.site.where]
    if not places:
        return ""
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return one_line(f", made at {', '.join(places[:_MOST_PLACES])}{more}")


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
