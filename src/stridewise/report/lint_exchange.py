"""What `lint` found, as other programs read it."""

from msgspec.structs import replace

from stridewise.findings import Finding, Safety
from stridewise.report.content import Change, Contents
from stridewise.report.exchange import Exchange, Fix
from stridewise.report.lint_summary import headline, sentences
from stridewise.report.text import one_line
from stridewise.results.lint import LintRun

APPLIED: dict[Safety, str] = {
    "safe": "safe, applied by --fix",
    "unsafe": "unsafe, applied by --fix --unsafe-fixes",
    "display": "shown only",
}
"""How a fix of some safety is made."""


def of_lint(run: LintRun, contents: Contents) -> Exchange:
    """Each finding with its fix; those that are only shown are not offered to programs.

    Nor are those of cells, of which these formats know nothing: messages say which it is.
    """
    return Exchange(
        "stridewise lint",
        tuple(_in_file(finding, contents) for finding in run.findings),
        " ".join((headline(run), *sentences(run))),
        run.notes,
        run.share_of,
        tuple(row if row.cell is None else replace(row, line=None) for row in run.unread),
        {finding.fingerprint: (_fix(finding, contents),) for finding in run.findings if finding.edits},
        contents,
    )


def _in_file(finding: Finding, contents: Contents) -> Finding:
    """A finding at a place in a file, if it is in a cell of one."""
    site = finding.site
    if site.cell is None:
        return finding
    origin = None if finding.origin is None else contents.in_file(finding.origin)
    message = f"Cell {site.cell}, line {site.line}: {finding.message}"
    return replace(finding, message=message, site=contents.in_file(site), origin=origin)


def _fix(finding: Finding, contents: Contents) -> Fix:
    changes = contents.changes(finding)
    safety = finding.edits[0].safety
    made = one_line(_written(changes) or "; ".join(edit.replacement for edit in finding.edits))
    text = f"`{made}` ({APPLIED[safety]})" if made else f"delete it ({APPLIED[safety]})"
    return Fix(text, finding.edits, offered=safety != "display" and bool(changes) and finding.site.cell is None)


def _written(changes: tuple[Change, ...]) -> str:
    return "; ".join(line.strip() for change in changes for line in change.new)
