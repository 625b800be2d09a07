"""A report as annotations of GitHub Actions: workflow commands, one a finding.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from collections.abc import Collection
from typing import TextIO

from stridewise.findings import Finding, Severity, Site
from stridewise.report import Table, numbers
from stridewise.report.headline import headline
from stridewise.report.source import character_region
from stridewise.report.text import inert
from stridewise.results import Report

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, out: TextIO, *, tables: Collection[Table] = ()) -> None:
    """Write one annotation a finding, then the report's sentence and its notes. Tables have no place in it."""
    for finding in report.findings:
        title = f"{finding.code} {finding.title}"
        out.write(annotation(finding.severity, title, _message(finding, report), finding.site))
    for text in (headline(report), *report.notes):
        out.write(annotation("note", "stridewise", text))


def annotation(severity: Severity, title: str, message: str, site: Site | None = None) -> str:
    """One command, with its line break; at a place in a file, if there is one."""
    values: dict[str, object] = {}
    if site is not None and site.file is not None:
        region = character_region(site)
        values["file"] = site.file.replace("\\", "/")
        values |= {"line": site.line, "endLine": site.end_line} if site.line else {}
        if region and site.end_line in (None, site.line):  # the runner wants columns on single lines only
            values |= {"col": region[0], "endColumn": region[1]}
    values["title"] = title
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in values.items() if value is not None)
    return f"::{_COMMANDS[severity]} {properties}::{_data(message)}\n"


def _message(finding: Finding, report: Report) -> str:
    cost = numbers.cost(finding.cost)
    if finding.cost.share is not None:
        cost += f", {numbers.share(finding.cost.share)} of {report.totals.share_of}"
    payers = [f"paid at {payer.site.where}: {numbers.cost(payer.cost)}" for payer in finding.payers[:6]]
    parts = [finding.message, f"Cost: {cost}", *payers, finding.advice or ""]
    return "\n".join(filter(None, parts))


def _data(text: str) -> str:
    # Line breaks are kept, as the runner wants them; every other control character is made visible.
    lines = "\n".join(inert(line) for line in text.splitlines())
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(inert(text)).replace(":", "%3A").replace(",", "%2C")
