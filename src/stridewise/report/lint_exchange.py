"""What `lint` found, as other programs read it."""

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
    """Each finding with its fix; those that are only shown are not offered to programs."""
    return Exchange(
        "stridewise lint",
        run.findings,
        " ".join((headline(run), *sentences(run))),
        run.notes,
        run.share_of,
        run.unread,
        {finding.fingerprint: (_fix(finding, contents),) for finding in run.findings if finding.edits},
        contents,
    )


def _fix(finding: Finding, contents: Contents) -> Fix:
    changes = contents.changes(finding)
    safety = finding.edits[0].safety
    made = one_line(_written(changes) or "; ".join(edit.replacement for edit in finding.edits))
    text = f"`{made}` ({APPLIED[safety]})" if made else f"delete it ({APPLIED[safety]})"
    return Fix(text, finding.edits, offered=safety != "display" and bool(changes))


def _written(changes: tuple[Change, ...]) -> str:
    return "; ".join(line.strip() for change in changes for line in change.new)
