"""The page of a lint run."""

from collections import Counter

from stridewise.report.content import Contents
from stridewise.report.html.cards import cards, diff_lines, meanings
from stridewise.report.html.model import Figure, Page, Table
from stridewise.report.lint_summary import by_code, headline, sentences
from stridewise.results import LintRun
from stridewise.results.numbers import figure


def page(run: LintRun, contents: Contents) -> Page:
    """Findings in source, by code and one by one, and what could not be read."""
    severities = Counter(finding.severity for finding in run.findings)
    return Page(
        command="stridewise lint",
        verdict=headline(run),
        tone="wrong" if severities["error"] else "fine" if run.ok else "look",
        figures=(
            Figure(figure(severities["error"]), "errors", "wrong values or a crash"),
            Figure(figure(severities["warning"]), "warnings"),
            Figure(figure(sum(bool(finding.edits) for finding in run.findings)), "with a fix"),
            Figure(figure(run.files), "file read" if run.files == 1 else "files read", f"{figure(run.lines)} lines"),
        ),
        remarks=tuple(sentences(run)),
        cards=cards(run.findings, share_of=run.share_of or "", contents=contents),
        diff=tuple(diff_lines(run.diff)),
        tables=tuple(table for table in (_codes(run), _unread(run), _refused(run)) if table.rows),
        notes=run.notes,
        meanings=meanings(run.findings),
    )


def _codes(run: LintRun) -> Table:
    rows = [(row.code, row.title, figure(row.count), figure(sum(row.fixes.values()))) for row in by_code(run)]
    return Table("By code", ("code", "name", "findings", "with a fix"), tuple(rows), numeric=(2, 3), code=(0,))


def _unread(run: LintRun) -> Table:
    rows = [(row.file, "" if row.line is None else str(row.line), row.reason) for row in run.unread]
    return Table("Not read", ("file", "line", "why"), tuple(rows), numeric=(1,), code=(0,))


def _refused(run: LintRun) -> Table:
    rows = [(row.file, row.reason) for row in run.refused]
    return Table("Fixes that were not written", ("file", "why"), tuple(rows), code=(0,))
