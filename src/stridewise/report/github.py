"""A report as annotations of GitHub Actions: workflow commands, one a finding.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from typing import TextIO

from stridewise.findings import Finding
from stridewise.report import numbers
from stridewise.report.headline import headline
from stridewise.report.source import character_region
from stridewise.report.text import inert
from stridewise.results import Report

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, out: TextIO, *, copies: bool = False, modules: bool = False) -> None:
    """Write one annotation a finding, then the report's sentence and its notes. Tables have no place in it."""
    for finding in report.findings:
        out.write(f"::{_COMMANDS[finding.severity]} {_properties(finding)}::{_data(_message(finding, report))}\n")
    for text in (headline(report), *report.notes):
        out.write(f"::notice title=stridewise::{_data(text)}\n")


def _properties(finding: Finding) -> str:
    site = finding.site
    values: dict[str, object] = {}
    if site.file is not None:
        region = character_region(site)
        values["file"] = site.file.replace("\\", "/")
        values |= {"line": site.line, "endLine": site.end_line} if site.line else {}
        if region and site.end_line in (None, site.line):  # the runner wants columns on single lines only
            values |= {"col": region[0], "endColumn": region[1]}
    values["title"] = f"{finding.code} {finding.title}"
    return ",".join(f"{key}={_property(str(value))}" for key, value in values.items() if value is not None)


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
