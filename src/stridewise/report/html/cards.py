"""Findings as cards."""

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from stridewise.findings import NOT_MEASURED, Cost, Edit, Finding, Payer, Site
from stridewise.report.codes import doc
from stridewise.report.content import Change, Contents
from stridewise.report.html.model import Card, DiffLine, Interval, Meaning, Stop, Suggestion
from stridewise.report.path import grouped_carriers, grouped_payers, shown_expression, shown_place, sole_payer, start_of
from stridewise.report.source import excerpt
from stridewise.results import numbers
from stridewise.results.checks import Snippet

_MOST_STOPS = 12


def cards(
    findings: Iterable[Finding],
    *,
    period: str = "",
    share_of: str = "",
    noun: str = "time",
    contents: Contents | None = None,
    snippets: Collection[Snippet] = (),
    trials: Mapping[str, tuple[Interval, ...]] | None = None,
) -> tuple[Card, ...]:
    """Cards with ids of their own, in the order of findings.

    `period` and `share_of` say what costs are of, `noun` what the count of a finding counts.
    """
    contents = contents or Contents()
    made = []
    for number, finding in enumerate(findings, start=1):
        mine = tuple(snippet for snippet in snippets if snippet.finding == finding.fingerprint)
        tried = (trials or {}).get(finding.fingerprint, ())
        made.append(_card(finding, number, period, share_of, noun, contents, mine, tried))
    return tuple(made)


def meanings(findings: Iterable[Finding]) -> tuple[Meaning, ...]:
    """What the codes of some findings mean, in the order in which they are met."""
    return meanings_of(finding.code for finding in findings)


def meanings_of(codes: Iterable[str]) -> tuple[Meaning, ...]:
    """What some codes mean, each once; nothing for a code that no rule has."""
    found = map(doc, dict.fromkeys(codes))
    return tuple(Meaning(each.code, each.title, each.summary, tuple(_sections(each.doc))) for each in found if each)


def diff_lines(diff: str) -> Iterator[DiffLine]:
    """The lines of a unified diff."""
    for line in diff.splitlines():
        if line.startswith(("---", "+++", "@@")):
            yield DiffLine("@", line)
        elif line[:1] in ("-", "+"):
            yield DiffLine("-" if line[0] == "-" else "+", line[1:])
        else:
            yield DiffLine(" ", line[1:])


def card_at(site: Site, number: int, **fields: Any) -> Card:
    """A page's card of this number about a place: what is known of the place, and the other fields."""
    lines = excerpt(site)
    place = site.where if site.file else site.expression or ""
    if site.file and lines and lines[0].marked:
        place += f":{len(lines[0].before) + 1}"
    return Card(
        id=f"finding-{number}",
        file=site.file or "",
        place=place,
        within=tuple(_within(site)),
        line=site.line or 0,
        module=site.module or "",
        source=lines,
        **fields,
    )


def _card(
    finding: Finding,
    number: int,
    period: str,
    share_of: str,
    noun: str,
    contents: Contents,
    snippets: tuple[Snippet, ...],
    trials: tuple[Interval, ...],
) -> Card:
    payer = sole_payer(finding)
    return card_at(
        finding.site,
        number,
        code=finding.code,
        title=finding.title,
        severity=finding.severity,
        message=finding.message,
        times=f"{numbers.count(finding.count, noun)}{f' {period}' if period else ''}" if finding.count > 1 else "",
        stops=() if payer else tuple(_stops(finding)),
        copied=payer.operand or "" if payer else "",
        cost=_cost(finding.cost, period, share_of),
        share=finding.cost.share,
        bytes_moved=finding.cost.bytes_moved or 0,
        evidence=finding.evidence,
        advice=finding.advice or "",
        suggestions=(*_suggestions(finding, contents), *(Suggestion(row.layout, code=row.code) for row in snippets)),
        trials=trials,
        inferred=finding.inferred,
    )


def _within(site: Site) -> Iterator[str]:
    if site.function:
        yield f"in `{site.function}`"
    if site.module:
        yield f"module `{site.module}`"
    if site.via:
        yield f"inside {site.via}"


def _cost(cost: Cost, period: str, share_of: str) -> str:
    if cost in (Cost(), NOT_MEASURED):
        return ""
    text = f"{numbers.cost(cost)}{f' {period}' if period else ''}"
    return f"{text}: {numbers.share(cost.share)} of {share_of}" if cost.share is not None and share_of else text


# ------------------------------------------------------------------------------------------------------------- the way


def _stops(finding: Finding) -> Iterator[Stop]:
    home, origin = finding.site, finding.origin
    if origin is not None and (finding.carriers or finding.payers or origin != home):
        yield Stop("origin", shown_expression(origin, "?"), shown_place(origin, home), start_of(finding))
    carriers = grouped_carriers(finding.carriers)
    for carrier in carriers[:_MOST_STOPS]:
        times = f", {numbers.figure(carrier.count)} times" if carrier.count > 1 else ""
        place = shown_place(carrier.site, home)
        yield Stop("carrier", shown_expression(carrier.site, carrier.op), place, f"passes it on{times}")
    if (more := len(carriers) - _MOST_STOPS) > 0:
        yield Stop("carrier", f"… {more} more", "", "pass it on")
    yield from _paying(finding.payers, home)


def _paying(payers: tuple[Payer, ...], home: Site) -> Iterator[Stop]:
    rows, above = grouped_payers(payers), None
    for payer, calls in rows[:_MOST_STOPS]:
        times = f" (×{calls})" if calls > 1 else ""
        expression = shown_expression(payer.site, payer.op) + times
        pays = f"pays {numbers.cost(payer.cost)}" + (", in backward" if payer.op.endswith("(backward)") else "")
        operand = "" if payer.operand == above else payer.operand or ""
        above = payer.operand
        yield Stop("payer", expression, shown_place(payer.site, home), pays, operand)
    if (more := len(rows) - _MOST_STOPS) > 0:
        yield Stop("payer", f"… {more} more", "", "pay the rest")


# ------------------------------------------------------------------------------------------------------------ the edits


def _suggestions(finding: Finding, contents: Contents) -> Iterator[Suggestion]:
    if not finding.edits:
        return
    changes, safety = contents.changes(finding), finding.edits[0].safety
    how = {"safe": "safe: values and aliasing stay what they were", "unsafe": "may change what the program does"}
    said = how.get(safety, "shown only")
    if changes:
        yield Suggestion(f"Edit ({said})", tuple(_changed(changes)))
        return
    for edit in finding.edits:
        yield Suggestion(f"Edit of {edit.file} ({said})", tuple(_replaced(edit)))


def _changed(changes: Iterable[Change]) -> Iterator[DiffLine]:
    for change in changes:
        yield DiffLine("@", f"line {change.line}")
        yield from (DiffLine("-", line) for line in change.old)
        yield from (DiffLine("+", line) for line in change.new)


def _replaced(edit: Edit) -> Iterator[DiffLine]:
    """What stands there is not known any more: the file is another, or not here."""
    for line in edit.replacement.splitlines() or [""]:
        yield DiffLine("+", line)


# --------------------------------------------------------------------------------------------------------- the meanings


def _sections(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The parts of a rule's docstring: a heading, and what is indented under it, by paragraphs."""
    for part in re.split(r"\n(?=\S)", text.strip()):
        heading, _, body = part.partition("\n")
        paragraphs = re.split(r"\n\s*\n", textwrap.dedent(body).strip())
        yield heading, tuple(paragraph for paragraph in paragraphs if paragraph)
