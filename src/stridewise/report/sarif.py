"""A report as SARIF 2.1.0, which code scanning services and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

from stridewise import __version__
from stridewise.findings import Finding, Site
from stridewise.report import Table, numbers
from stridewise.report.headline import headline
from stridewise.report.json import dumps
from stridewise.report.source import character_region
from stridewise.report.text import inert, one_line
from stridewise.results import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LINK = re.compile(r"\[([^\[\]]*)\](?=\()")


def render(report: Report, out: TextIO, *, tables: Collection[Table] = ()) -> None:
    """Write one run with a result for each finding; the lists of copies and modules have no place in it."""
    notifications = (headline(report), *report.notes)
    out.write(document(report.findings, notifications, share_of=report.totals.share_of))


def document(
    findings: Sequence[Finding],
    notifications: Sequence[str],
    *,
    share_of: str | None = None,
    fixes: Mapping[str, Sequence[Any]] | None = None,
) -> str:
    """One run as text: a result for each finding, with the fixes that its fingerprint has."""
    codes = list(dict.fromkeys(finding.code for finding in findings))
    titles = {finding.code: finding.title for finding in reversed(findings)}
    driver = {
        "name": "stridewise",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, titles[code]) for code in codes],
    }
    results = []
    for finding in findings:
        result = _result(finding, codes.index(finding.code), share_of)
        fixed = (fixes or {}).get(finding.fingerprint)
        results.append(result | ({"fixes": fixed} if fixed else {}))
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": message(text)}} for text in notifications
                ],
            }
        ],
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str, title: str) -> dict[str, Any]:
    from stridewise.report.codes import all_docs

    rule = next((rule for rule in all_docs() if rule.code == code), None)
    if rule is None:
        return {"id": code, "name": title}
    return {
        "id": code,
        "name": rule.title,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.doc},
    }


def _result(finding: Finding, rule: int, share_of: str | None) -> dict[str, Any]:
    cost = numbers.cost(finding.cost)
    if finding.cost.share is not None and share_of is not None:
        cost += f", {numbers.share(finding.cost.share)} of {share_of}"
    sentences = [finding.message, f"Cost: {cost}.", finding.advice or ""]
    related = [(f"pays {numbers.cost(payer.cost)}", payer.site) for payer in finding.payers]
    if finding.origin is not None and finding.origin != finding.site:
        related.insert(0, ("starts the stream", finding.origin))
    placed = [(text, site) for text, site in related if site.file is not None]
    locations = [
        {"id": number, "message": {"text": text}, **_location(site)}
        for number, (text, site) in enumerate(placed, start=1)
    ]
    result = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": "\n".join(message(sentence) for sentence in sentences if sentence)},
        "locations": [_location(finding.site)],
        "partialFingerprints": {"stridewise/v1": finding.fingerprint},
        "occurrenceCount": max(finding.count, 1),
        "properties": {"cost": finding.cost},
    }
    return result | ({"relatedLocations": locations} if locations else {})


def _location(site: Site) -> dict[str, Any]:
    names = [(site.function, "function"), (site.module, "module")]
    logical = [{"fullyQualifiedName": one_line(name), "kind": kind} for name, kind in names if name]
    if site.file is None:
        return {"logicalLocations": logical or [{"fullyQualifiedName": one_line(site.where)}]}
    place: dict[str, Any] = {"artifactLocation": artifact(site.file)}
    if site.line:
        place["region"] = _region(site)
    return {"physicalLocation": place} | ({"logicalLocations": logical} if logical else {})


def _region(site: Site) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": site.line}
    columns = character_region(site)
    if columns is None:
        return region
    region["startColumn"] = columns[0]
    if site.end_line is not None and columns[1] is not None:
        region |= {"endLine": site.end_line, "endColumn": columns[1]}
    return region


def artifact(file: str) -> dict[str, str]:
    """Where a file is: relative to the project, unless its name is absolute."""
    if Path(file).is_absolute():
        return {"uri": f"file://{quote(file.encode('utf-8', 'replace'))}"}
    return {"uri": quote(file.replace("\\", "/").encode("utf-8", "replace")), "uriBaseId": "%SRCROOT%"}


def message(text: str) -> str:
    """Text of a message: inert, and without links."""
    # `[text](target)` would be a link in a SARIF message.
    return _LINK.sub(r"\\[\1\\]", "\n".join(inert(line) for line in text.splitlines()))
