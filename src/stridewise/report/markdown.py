"""Markdown for the page of a CI job, a pull request, or a file: the sentence, figures, and findings that unfold.

Tables and what unfolds are HTML, which Markdown allows: there nothing of a program's text is Markdown. No block has a
blank line in it, where Markdown would begin again, so that a text can be cut between any two.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from stridewise.findings import NOT_MEASURED, Cost, Finding, Severity
from stridewise.report.exchange import Exchange
from stridewise.report.source import excerpt
from stridewise.report.text import inert, one_line, shorten
from stridewise.results import numbers

_MOST_ROWS = 100
_MOST_DETAILS = 25
_MOST_NOTES = 20
_LONGEST = 600
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
# What GitHub and GitLab make a link of in text that is no code: `@name`, `#1`, `GH-1`, a commit, `https://`, `www.`;
# and a picture of: `:tada:`.
_LINKED = re.compile(
    r"@(?=\w)|[#!](?=\d)|\bGH(?=-\d)|\b[0-9a-f]{39}(?=[0-9a-f]\b)|:(?=//|[a-z+-][\w+-]*:|100:|1234:)|\bwww(?=\.)",
    re.IGNORECASE,
)
_JOINER = "\N{WORD JOINER}"
_CODE = re.compile(r"`([^`]+)`")


def dumps(result: Exchange) -> str:
    """The whole text."""
    return "".join(f"{block}\n\n" for block in _blocks(result))


def page(
    name: str, headline: str, notes: Iterable[str], heads: tuple[str, ...] = (), rows: Iterable[tuple[str, ...]] = ()
) -> str:
    """A page of a table, for results that are no `Exchange`. A backquoted part of a cell is code."""
    cells = [tuple(map(_prose, row)) for row in rows]
    blocks = [*_begin(name, headline), *([_rows(heads, cells[:_MOST_ROWS], len(cells))] if cells else [])]
    return "".join(f"{block}\n\n" for block in (*blocks, *_notes(notes)))


def cut(text: str, most_bytes: int, why: str) -> str:
    """The first blocks of a text, as many as fit in a number of UTF-8 bytes; then a line that says why it ends."""
    if len(text.encode()) <= most_bytes:
        return text
    last = f"<p>Cut here: {_prose(why)}</p>\n\n"
    room = most_bytes - len(last.encode())
    kept = []
    for block in text.split("\n\n"):
        room -= len(block.encode()) + 2
        if room < 0:
            break
        kept.append(f"{block}\n\n")
    return "".join((*kept, last)) if kept else ""


def _blocks(result: Exchange) -> Iterator[str]:
    yield from _begin(result.name, result.headline)
    findings = result.findings
    if findings:
        yield f"<p>{_prose(_figures(findings))}</p>"
        yield _table(result)
    for finding in findings[:_MOST_DETAILS]:
        yield _details(finding, result)
    if result.unread:
        rows = [(f"<code>{_text(row.file)}</code>", _prose(row.reason)) for row in result.unread[:_MOST_ROWS]]
        yield _rows(("Not read", "Why"), rows, len(result.unread))
    yield from _notes(result.notes)


def _begin(name: str, headline: str) -> Iterator[str]:
    yield f"## {name}"  # a name of ours
    yield f"<p><b>{_prose(headline)}</b></p>"


def _notes(notes: Iterable[str]) -> Iterator[str]:
    items = [f"<li>{_prose(note)}</li>" for note in notes][:_MOST_NOTES]
    if items:
        yield "\n".join(("<ul>", *items, "</ul>"))


def _figures(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    parts = [numbers.count(counts[severity], severity) for severity in _SEVERITIES if counts[severity]]
    measured = [finding.cost for finding in findings if finding.cost != NOT_MEASURED]
    if any(cost.copies for cost in measured):
        together = Cost(sum(cost.copies or 0 for cost in measured), sum(cost.bytes_moved or 0 for cost in measured))
        parts.append(numbers.cost(together))
    return ", ".join(parts)


def _table(result: Exchange) -> str:
    rows = []
    for finding in result.findings[:_MOST_ROWS]:
        site = finding.site
        cost = numbers.cost(finding.cost) if finding.cost.copies else ""
        share = f", {numbers.share(finding.cost.share)}" if cost and finding.cost.share is not None else ""
        code = f"{finding.severity} {_text(finding.code)}<br>{_text(finding.title)}"
        what = f"<code>{_text(shorten(one_line(site.expression), 80))}</code>" if site.expression else ""
        rows.append((code, f"<code>{_text(site.where)}</code>" if site.file else "", what, _text(cost + share)))
    return _rows(("Finding", "Where", "Expression", "Cost"), rows, len(result.findings))


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], total: int) -> str:
    lines = ["<table>", f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    shown = len(lines) - 2
    if total > shown:
        lines.append(
            f'<tr><td colspan="{len(heads)}">and {total - shown:,} more: all of them in --format json</td></tr>'
        )
    return "\n".join((*lines, "</table>"))


def _details(finding: Finding, result: Exchange) -> str:
    site = finding.site
    where = f" at <code>{_text(site.where)}</code>" if site.file else ""
    lines = ["<details>", f"<summary>{_text(f'{finding.code} {finding.title}')}{where}</summary>"]
    source = [f"{line.number:>5} | {_source(line.text)}" for line in excerpt(site)]
    if source:
        lines += [f"<pre>{source[0]}", *source[1:]]
        lines[-1] += "</pre>"
    sentences = [part for text in result.sentences(finding, whole=True) for part in text.splitlines() if part.strip()]
    lines += ["<ul>", *(f"<li>{_prose(sentence)}</li>" for sentence in sentences), "</ul>", "</details>"]
    return "\n".join(lines)


def _prose(text: str) -> str:
    """A sentence, in which what stands in backquotes is code."""
    parts = _CODE.split(shorten(one_line(text), _LONGEST))
    return "".join(f"<code>{html.escape(part)}</code>" if at % 2 else _unlinked(part) for at, part in enumerate(parts))


def _text(text: str) -> str:
    return _unlinked(one_line(text))


def _unlinked(text: str) -> str:
    broken = html.escape(_LINKED.sub(lambda match: f"{match[0]}{_JOINER}", text))
    return broken.replace("$", "<span>$</span>")  # two would enclose a formula


def _source(text: str) -> str:
    return html.escape(inert(shorten(text.replace("\t", "    "), _LONGEST)))
