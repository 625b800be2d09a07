"""Annotations of GitHub Actions: workflow commands, one a finding.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

import os

from stridewise.findings import Severity, Site
from stridewise.report.exchange import Exchange
from stridewise.report.source import character_region
from stridewise.report.text import inert

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}


def dumps(result: Exchange) -> str:
    """One annotation a finding and a file that was not read, then the result's sentence and its notes."""
    lines = []
    for finding in result.findings:
        message = "\n".join(result.sentences(finding, whole=True))
        lines.append(annotation(finding.severity, f"{finding.code} {finding.title}", message, finding.site))
    lines += [annotation("error", result.name, row.reason, Site(row.file, row.line)) for row in result.unread]
    lines += [annotation("note", result.name, text) for text in (result.headline, *result.notes)]
    return "".join(lines)


def annotation(severity: Severity, title: str, message: str, site: Site | None = None) -> str:
    """One command, with its line break; at a place in a file, if there is one."""
    values: dict[str, object] = {}
    if site is not None and site.file is not None:
        region = character_region(site)
        values["file"] = site.file.replace(os.sep, "/")
        values |= {"line": site.line, "endLine": site.end_line} if site.line else {}
        if region and site.end_line in (None, site.line):  # the runner wants columns on single lines only
            values |= {"col": region[0], "endColumn": region[1]}
    values["title"] = title
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in values.items() if value is not None)
    return f"::{_COMMANDS[severity]} {properties}::{_data(message)}\n"


def _data(text: str) -> str:
    # Line breaks are kept, as the runner wants them; every other control character is made visible.
    lines = "\n".join(inert(line) for line in text.splitlines())
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(inert(text)).replace(":", "%3A").replace(",", "%2C")
