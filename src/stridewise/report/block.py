"""What the text of every finding has: its title, its message, and the source that it is about."""

from collections.abc import Iterator

from rich.text import Text

from stridewise.findings import Finding, Severity, Site
from stridewise.report.prose import hang, quote
from stridewise.report.source import SourceLine, excerpt, source_rows
from stridewise.report.text import inert, one_line

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def titled(finding: Finding, width: int, times: str = "") -> Iterator[Text]:
    """`warning[SW103] hidden-copy, 48 times a step`, and the message."""
    style = STYLES[finding.severity]
    title = Text.assemble(
        (f"{finding.severity}[{inert(finding.code)}]", style), (f" {one_line(finding.title)}", "bold")
    )
    title.append(f", {times}" if times else "")
    yield from hang("", title, width)
    yield from hang("  ", quote(finding.message), width)


def placed(site: Site, style: str, width: int) -> Iterator[Text]:
    """Where a site is, and its lines with the expression marked; nothing where no place is known."""
    lines = excerpt(site)
    place = one_line(site.file or "") and f"{one_line(site.file or '')}:{site.line}"
    if place and lines and lines[0].marked:
        place += f":{len(lines[0].before) + 1}"
    where = [place] if place else []
    where += [f"in {one_line(site.function)}"] if site.function else []
    where += [f"module {one_line(site.module)}"] if site.module else []
    where += [f"inside {one_line(site.via)}"] if site.via else []
    gutter = len(str(lines[-1].number)) if lines else 2
    if where:
        yield from hang(f"{' ' * gutter}--> ", Text(", ".join(where)), width, "blue")
    if not lines and site.expression and site.file:
        lines = (SourceLine(0, one_line(site.expression), "", ""),)
    if lines:
        yield Text(f"{' ' * gutter} │", "blue")
        for number, text, marks in source_rows(lines, width - gutter - 3):
            yield Text.assemble((f"{number or '':>{gutter}} │ ", "blue"), text)
            if marks:
                yield Text.assemble((f"{' ' * gutter} │ ", "blue"), (marks, style))
        yield Text()
