"""What `lint` did, counted: one sentence, then what can be fixed, what was, and what was left out."""

from collections import Counter
from collections.abc import Iterator

from stridewise.findings import Finding, Safety
from stridewise.results import numbers
from stridewise.results.lint import CodeCount, LintRun


def headline(run: LintRun) -> str:
    """Say in one sentence what was found, and in how much source."""
    if not run.findings:
        return _clean(run)
    files = len({finding.site.file for finding in run.findings})
    found = numbers.count(len(run.findings), "finding")
    severities = Counter(finding.severity for finding in run.findings)
    parts = [numbers.count(severities[name], name) for name in ("error", "warning", "note") if severities[name]]
    made = _made(run)
    left = "" if not made else " left" if run.written else " would be left"
    among = f"{numbers.figure(files)} of " if files != run.files else ""
    return f"{made}{'; ' if made else ''}{found}{left} in {among}{_read(run)}: {_listed(parts)}."


def sentences(run: LintRun) -> Iterator[str]:
    """What else there is to say: what can be fixed, and what does not show."""
    counts = Counter(safety(finding) for finding in run.findings)
    safe, unsafe = counts["safe"], counts["unsafe"]
    if safe:
        more = f", and {numbers.figure(unsafe)} more by `--fix --unsafe-fixes`" if unsafe else ""
        yield f"{numbers.figure(safe)} can be fixed by `--fix`{more}."
    elif unsafe:
        yield f"{numbers.figure(unsafe)} can be fixed by `--fix --unsafe-fixes`, which may change what a program does."
    if run.suppressed and run.findings:
        verb = "is" if run.suppressed == 1 else "are"
        yield f"{numbers.count(run.suppressed, 'finding')} {verb} suppressed by comments or settings."


def by_code(run: LintRun) -> tuple[CodeCount, ...]:
    """The codes that were found, most first."""
    rows = []
    for code, count in run.statistics.items():
        findings = [finding for finding in run.findings if finding.code == code]
        fixes = Counter(name for name in map(safety, findings) if name)
        rows.append(CodeCount(code, findings[0].title, count, dict(fixes)))
    return tuple(rows)


def safety(finding: Finding) -> Safety | None:
    """How safe a finding's fix is; None if it has none. All edits of a fix are as safe."""
    return finding.edits[0].safety if finding.edits else None


def _clean(run: LintRun) -> str:
    if not run.files:
        return "No file was linted." if not run.unread else f"{_unread(run)}."
    if made := _made(run):
        left = "none is left" if run.written else "none would be left"
        return f"{made}, and {left} in {_read(run)}{_aside(run)}."
    return f"No layout problems in {_read(run)}{_aside(run)}."


def _made(run: LintRun) -> str:
    count = sum(sum(row.fixes.values()) for row in run.fixed)
    if not count:
        return ""
    files = numbers.count(len(run.fixed), "file")
    return f"{'Fixed' if run.written else 'Would fix'} {numbers.count(count, 'finding')} in {files}"


def _aside(run: LintRun) -> str:
    parts = [f"{numbers.count(run.suppressed, 'finding')} suppressed"] if run.suppressed else []
    parts += [_unread(run)] if run.unread else []
    return f"; {'; '.join(parts)}" if parts else ""


def _unread(run: LintRun) -> str:
    files, cells = (sum((row.cell is not None) is of_cells for row in run.unread) for of_cells in (False, True))
    parts = [numbers.count(count, name) for count, name in ((files, "file"), (cells, "cell")) if count]
    return f"{' and '.join(parts)} could not be read"


def _read(run: LintRun) -> str:
    return f"{numbers.count(run.files, 'file')} ({numbers.count(run.lines, 'line')})"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
