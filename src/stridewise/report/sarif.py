"""SARIF 2.1.0, which code scanning services and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stridewise import __version__
from stridewise.findings import NOT_MEASURED, Edit, Finding, Severity, Site
from stridewise.report import json
from stridewise.report.content import Content, Contents
from stridewise.report.exchange import Exchange, Fix
from stridewise.report.source import character_region
from stridewise.report.text import inert, one_line
from stridewise.results import numbers

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LINK = re.compile(r"\[([^\[\]]*)\](?=\()")


def dumps(result: Exchange) -> str:
    """One run with a result for each finding, and a notification for each file that was not read and each note."""
    codes = list(dict.fromkeys(finding.code for finding in result.findings))
    titles = {finding.code: finding.title for finding in reversed(result.findings)}
    driver = {
        "name": "stridewise",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, titles[code]) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code), result) for finding in result.findings],
        # That a file was not read makes results incomplete; the tool itself has done what it could.
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": [*_notifications(result)]}],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _notifications(result: Exchange) -> Iterator[dict[str, Any]]:
    for row in result.unread:
        place = _location(Site(file=row.file, line=row.line))
        yield {"level": "error", "message": {"text": _message(row.reason)}, "locations": [place]}
    for text in (result.headline, *result.notes):
        yield {"level": "note", "message": {"text": _message(text)}}


def _rule(code: str, title: str) -> dict[str, Any]:
    from stridewise.report.codes import doc

    rule = doc(code)
    if rule is None:
        return {"id": code, "name": title}
    severity: Severity | None = getattr(rule, "severity", None)  # those on recordings have none that is always theirs
    return {
        "id": code,
        "name": rule.title,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.doc},
    } | ({"defaultConfiguration": {"level": severity}} if severity else {})


def _result(finding: Finding, rule: int, exchange: Exchange) -> dict[str, Any]:
    related = [(f"pays {numbers.cost(payer.cost)}", payer.site) for payer in finding.payers]
    if finding.origin is not None and finding.origin != finding.site:
        related.insert(0, ("starts the stream" if finding.payers else "comes from here", finding.origin))
    placed = [(text, site) for text, site in related if site.file is not None]
    locations = [
        {"id": number, "message": {"text": text}, **_location(site)}
        for number, (text, site) in enumerate(placed, start=1)
    ]
    result = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": "\n".join(map(_message, exchange.sentences(finding)))},
        "locations": [_location(finding.site)],
        "partialFingerprints": {"stridewise/v1": finding.fingerprint},
        "occurrenceCount": max(finding.count, 1),
    }
    if finding.cost != NOT_MEASURED:
        result["properties"] = {"cost": finding.cost}
    if locations:
        result["relatedLocations"] = locations
    if fixes := [*_fixes(finding, exchange)]:
        result["fixes"] = fixes
    return result


def _fixes(finding: Finding, exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The fixes that a program may make. Their regions are of text, so that the files must be at hand."""
    for fix in exchange.fixes.get(finding.fingerprint, ()):
        changes = _changes(fix, exchange.contents) if fix.offered else None
        if changes:
            yield {"description": {"text": _message(fix.text)}, "artifactChanges": changes}


def _changes(fix: Fix, contents: Contents) -> list[dict[str, Any]] | None:
    """The edits of a fix by file; None if one of its files isn't what it was."""
    files: defaultdict[str, list[Edit]] = defaultdict(list)
    for edit in fix.edits:
        files[edit.file].append(edit)
    changes = []
    for file, edits in files.items():
        content = contents.get(file)
        if content is None:
            return None
        try:
            spans = [_span(content, edit.span) for edit in edits]
        except ValueError:  # an encoding that reads no part of a line, or a file that changed
            return None
        replacements = [
            {"deletedRegion": span, "insertedContent": {"text": edit.replacement}}
            for span, edit in zip(spans, edits, strict=True)
        ]
        changes.append({"artifactLocation": _artifact(file), "replacements": replacements})
    return changes


def _span(content: Content, span: tuple[int, int]) -> dict[str, int]:
    """A span of bytes as SARIF counts: lines and characters from 1, the end exclusive."""
    (line, column), (end_line, end_column) = map(content.position, span)
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _location(site: Site) -> dict[str, Any]:
    names = [(site.function, "function"), (site.module, "module")]
    logical = [{"fullyQualifiedName": one_line(name), "kind": kind} for name, kind in names if name]
    if site.file is None:
        return {"logicalLocations": logical or [{"fullyQualifiedName": one_line(site.where)}]}
    place: dict[str, Any] = {"artifactLocation": _artifact(site.file)}
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


def _artifact(file: str) -> dict[str, str]:
    """Where a file is: relative to the project, unless its name is absolute."""
    if Path(file).is_absolute():
        return {"uri": f"file://{quote(file.encode('utf-8', 'replace'))}"}
    return {"uri": quote(file.replace(os.sep, "/").encode("utf-8", "replace")), "uriBaseId": "%SRCROOT%"}


def _message(text: str) -> str:
    """Text of a message: inert, and without links."""
    # `[text](target)` would be a link in a SARIF message.
    return _LINK.sub(r"\\[\1\\]", "\n".join(inert(line) for line in text.splitlines()))
