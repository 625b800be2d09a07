"""What `lint` found, as text: each finding with its source and fix, what could not be read, and what was done."""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import NOT_MEASURED, Finding, Safety, Severity, Site
from stridewise.report import Format, html, json
from stridewise.report import lint_summary as summary
from stridewise.report.color import wants_color
from stridewise.report.console import write
from stridewise.report.content import Change, Contents, Read
from stridewise.report.exchange import dumps
from stridewise.report.lint_exchange import APPLIED, of_lint
from stridewise.report.prose import column, hang, quote
from stridewise.report.source import character_region, excerpt, source_rows
from stridewise.report.text import inert, one_line, shorten
from stridewise.results import numbers
from stridewise.results.lint import Group, LintRun, LintStatistics, Mended

_LABEL = 10
_TITLE = 40
_MOST_PLACES = 6
_MOST_REPEATED = 10
_MOST_MENDED = 20
_MOST_CHANGED = 12
_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_KINDS: dict[Safety, str] = {"safe": "safe", "unsafe": "unsafe", "display": "shown only"}
_DIFF_STYLES = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}


def render(
    run: LintRun,
    out: TextIO,
    *,
    format: Format = "text",
    statistics: bool = False,
    read: Read | None = None,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it in one of the formats; as text at most 100 columns wide, but for a diff, which stays whole.

    `statistics` gives the counts alone, as text or JSON. `read` gives the content that the edits' offsets belong to;
    without it the files are read from the disk.
    """
    if format == "json":
        out.write(json.dumps(_counted(run) if statistics else run))
    elif format == "html":
        html.render(run, out, read=read)
    elif format != "text":
        out.write(dumps(of_lint(run, Contents(read)), format))
    elif statistics:
        write(lambda columns: _statistics(run, columns), out, color=color, width=width)
    else:
        color = wants_color(out) if color is None else color
        if run.diff and not run.written and not color:
            _write_diff(run.diff, out)
        write(lambda columns: _lines(run, Contents(read), columns, color=color), out, color=color, width=width)


def _lines(run: LintRun, contents: Contents, width: int, *, color: bool) -> Iterator[Text]:
    proposal = run.diff and not run.written
    if proposal:
        yield from _diff(run.diff) if color else ()
        yield Text()
    else:
        for group in run.groups:
            yield from _group(run, group, contents, width)
            yield Text()
    yield from _end(run, width)
    if len(run.statistics) > 1 and not proposal:
        yield from _table(run)
    for text in summary.sentences(run):
        yield from hang("", quote(text), width)
    if run.findings and not proposal:
        yield from hang("", Text(f"What a code means: stridewise rule {inert(run.findings[0].code)}", "dim"), width)


def _end(run: LintRun, width: int) -> Iterator[Text]:
    """What is no finding, and the sentence."""
    for unread in run.unread:
        yield from hang("unread".ljust(_LABEL), quote(one_line(unread.reason)), width, "bold red")
    done = "fixed" if run.written else "would fix"
    for mended in run.fixed[:_MOST_MENDED]:
        yield from hang(done.ljust(_LABEL), _mended(mended), width, "bold green")
    if len(run.fixed) > _MOST_MENDED:
        rest = numbers.count(len(run.fixed) - _MOST_MENDED, "more file")
        yield Text(f"{' ' * _LABEL}… {rest}: all of them in --format json")
    for refused in run.refused:
        text = quote(one_line(f"{refused.file}: {refused.reason}"))
        yield from hang("skipped".ljust(_LABEL), text, width, "bold red")
    for note in run.notes:
        yield from hang("note".ljust(_LABEL), quote(one_line(note)), width, "bold cyan")
    if run.unread or run.fixed or run.refused or run.notes:
        yield Text()
    clean = run.ok and not run.findings and run.files
    yield from hang("", quote(summary.headline(run), "bold green" if clean else "bold"), width)


def _mended(row: Mended) -> Text:
    fixes = ", ".join(one_line(code) + (f" ×{count}" if count > 1 else "") for code, count in row.fixes.items())
    return Text.assemble((one_line(row.file), "blue"), f": {fixes}")


# ------------------------------------------------------------------------------------------------------- each finding


def _group(run: LintRun, group: Group, contents: Contents, width: int) -> Iterator[Text]:
    first, *others = (run.findings[position] for position in group.findings)
    style = _STYLES[first.severity]
    yield from _title(first, style, width)
    yield from hang("  ", quote(one_line(first.message)), width)
    changes = contents.changes(first)
    yield from _source(first.site, style, width)
    for label, text in _labelled(first, changes, run, width):
        yield from hang(f"  {label}".ljust(_LABEL), text, width, "bold")
    if not _is_in_line(first.site, changes):
        yield from _changed(changes, width)
    if others:
        yield from hang(f"  {'also'}".ljust(_LABEL), _places(others), width, "bold")


def _title(finding: Finding, style: str, width: int) -> Iterator[Text]:
    place = Text(_place(finding.site), "blue")
    title = Text.assemble((inert(finding.code), style), (f" {one_line(finding.title)}", "bold"))
    title.append(f" ({finding.severity})", style)
    if place.cell_len + 1 + title.cell_len <= width:
        yield Text.assemble(place, " ", title)
    else:
        yield place  # whole, or no editor opens it
        yield from hang("  ", title, width)


def _place(site: Site) -> str:
    """`file:line:column`, which terminals and editors open."""
    region = character_region(site)
    return one_line(site.where) + (f":{region[0]}" if region and site.file else "")


def _source(site: Site, style: str, width: int) -> Iterator[Text]:
    lines = excerpt(site)
    gutter = max(len(str(lines[-1].number)) if lines else 0, 5)
    for number, text, marks in source_rows(lines, width - gutter - 3):
        yield Text.assemble((f"{number:>{gutter}} │ ", "blue"), text)
        if marks:
            yield Text.assemble((f"{' ' * gutter} │ ", "blue"), (marks, style))


def _labelled(finding: Finding, changes: tuple[Change, ...], run: LintRun, width: int) -> Iterator[tuple[str, Text]]:
    if finding.origin is not None and finding.origin != finding.site:
        origin = finding.origin
        shown = shorten(one_line(origin.expression or ""), width // 2)
        yield "from", Text.assemble(f"`{shown}` at " if shown else "", (_place(origin), "blue"))
    if finding.cost != NOT_MEASURED:
        share = finding.cost.share
        of = f": {numbers.share(share)} of {run.share_of}" if share is not None and run.share_of else ""
        copies = f"{numbers.cost(finding.cost)} a step{of}" if finding.cost.copies else "no copy in the recording"
        yield "cost", Text(copies)
    for evidence in finding.evidence:
        yield "why", quote(one_line(evidence))
    if finding.advice:
        yield "do", quote(one_line(finding.advice))
    if finding.edits:
        yield "fix", _fix(finding, changes, width)


def _fix(finding: Finding, changes: tuple[Change, ...], width: int) -> Text:
    how = APPLIED[finding.edits[0].safety]
    if changes and not _is_in_line(finding.site, changes):
        return Text(how, "dim")
    lines = [change.new[0] for change in changes] or [edit.replacement for edit in finding.edits]
    written = shorten(inert("; ".join(one_line(line) for line in lines)), 2 * width)
    return Text.assemble((written or "delete it", "green"), (f"  ({how})", "dim"))


def _is_in_line(site: Site, changes: tuple[Change, ...]) -> bool:
    """Whether a fix makes one line of the one that is shown: the new one says it all."""
    if not changes:
        return True
    change = changes[0]
    return len(changes) == 1 and change.line == site.line and len(change.old) == len(change.new) == 1


def _changed(changes: Iterable[Change], width: int) -> Iterator[Text]:
    """A small diff: the lines that go, and those that come."""
    for change in changes:
        old, new = ([inert(line.expandtabs(4).rstrip()) for line in side] for side in (change.old, change.new))
        indent = min((len(line) - len(line.lstrip()) for line in (*old, *new) if line), default=0)
        for sign, lines, style in (("-", old, "red"), ("+", new, "green")):
            for at, line in enumerate(lines[:_MOST_CHANGED]):
                number = str(change.line + at) if sign == "-" or not old else ""
                yield Text.assemble(
                    (f"{number:>9} ", "blue"), (shorten(f"{sign} {line[indent:]}".rstrip(), width - 10), style)
                )
            if len(lines) > _MOST_CHANGED:
                yield Text(f"{'':>10}{sign} … {numbers.count(len(lines) - _MOST_CHANGED, 'more line')}", style)


def _places(findings: list[Finding]) -> Text:
    """Where the same stands elsewhere, a file's lines together."""
    files = [(file, list(rows)) for file, rows in groupby(findings, key=lambda finding: finding.site.file)]
    text = Text(f"in {numbers.count(len(findings), 'more place')}: ")
    shown = 0
    for file, rows in files[:_MOST_PLACES]:
        text.append(", " if shown else "")
        text.append(one_line(file or rows[0].site.where), "blue")
        most = _MOST_PLACES if len(rows) > _MOST_PLACES + 1 else len(rows)  # "and 1 more" takes as much room
        lines = [finding.site.where.removeprefix(file or "") for finding in rows[:most] if finding.site.line]
        text.append(" ".join(lines), "blue")
        shown += len(lines) if lines else 1
    if shown < len(findings):
        text.append(f" and {numbers.figure(len(findings) - shown)} more, all in --format json")
    return text


# -------------------------------------------------------------------------------------------------------------- counts


def _statistics(run: LintRun, width: int) -> Iterator[Text]:
    if run.findings:
        yield from _table(run)
        yield Text()
        yield from _repeated(run, width)
    yield from _end(run, width)


def _table(run: LintRun) -> Iterator[Text]:
    rows = summary.by_code(run)
    counts = [numbers.figure(row.count) for row in rows]
    titles = [shorten(one_line(row.title), _TITLE) for row in rows]
    cells, names = max(map(len, counts)), max(map(cell_len, titles))
    for row, count, title in zip(rows, counts, titles, strict=True):
        fixes = ", ".join(
            f"{numbers.figure(row.fixes[name])} {kind}" for name, kind in _KINDS.items() if name in row.fixes
        )
        text = Text.assemble(f"{count:>{cells + 2}}  ", (inert(row.code), "bold"), "  ")
        text.append(column(title, names) if fixes else title)
        yield text.append(f"  fixes: {fixes}" if fixes else "", "dim")


def _repeated(run: LintRun, width: int) -> Iterator[Text]:
    """The expressions that stand in most places: projects copy code."""
    groups = sorted(run.groups, key=lambda group: -len(group.findings))
    shown = [group for group in groups if len(group.findings) > 1][:_MOST_REPEATED]
    if not shown:
        return
    yield Text("Most repeated", "bold")
    cells = len(numbers.figure(len(shown[0].findings)))
    for group in shown:
        head = f"{numbers.figure(len(group.findings)):>{cells + 2}}  "
        place = _place(run.findings[group.findings[0]].site)
        expression = shorten(one_line(group.expression), width // 2)
        text = Text.assemble((inert(group.code), "bold"), f"  {expression}  ", ("first at ", "dim"), (place, "blue"))
        yield from hang(head, text, width)
    yield Text()


def _counted(run: LintRun) -> LintStatistics:
    repeated = tuple(group for group in run.groups if len(group.findings) > 1)
    return LintStatistics(
        summary.by_code(run), repeated, run.files, run.lines, run.unread, run.suppressed, run.schema_version
    )


def _diff(diff: str) -> Iterator[Text]:
    for line in map(_inert, _diff_lines(diff)):
        style = next((style for mark, style in _DIFF_STYLES.items() if line.startswith(mark)), "")
        yield Text(line.rstrip("\r\n"), style)


def _write_diff(diff: str, out: TextIO) -> None:
    """Write a diff as it is, which `git apply` takes; on a terminal, and for a CI runner, nothing in it is obeyed."""
    lines: Iterable[str] = _diff_lines(diff)
    if out.isatty():
        lines = map(_inert, lines)
    elif os.environ.get("GITHUB_ACTIONS") and out in (sys.stdout, sys.stderr):
        lines = (_inert(line) if _is_obeyed(line) else line for line in lines)
    if isinstance(out, io.TextIOWrapper) and not out.isatty():
        out.flush()
        # Past the stream's encoding and its line ends: a diff has those of the files.
        out.buffer.write("".join(lines).encode("utf-8", "backslashreplace"))
    else:
        out.writelines(lines)


def _diff_lines(diff: str) -> Iterator[str]:
    for line in diff.removesuffix("\n").split("\n"):  # splitlines would break at what is part of a line
        yield f"{line}\n"


def _inert(line: str) -> str:
    """A line of a diff, inert; tabs and what ends it stay as they are."""
    text = line.rstrip("\n").removesuffix("\r")
    return "\t".join(inert(part) for part in text.split("\t")) + line[len(text) :]


def _is_obeyed(line: str) -> bool:
    """Whether a runner of GitHub Actions may take a line for a command: `##[` anywhere, `::` where text begins."""
    parts = ("".join(char for char in part if char.isprintable()).lstrip() for part in line.splitlines())
    return "##[" in line or any(part.startswith("::") for part in parts)
