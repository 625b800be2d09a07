"""A report in a terminal, a pipe or a text file: one sentence, then each finding with source, path, cost and fix."""

from collections.abc import Collection, Iterator
from typing import TextIO

from rich.text import Text

from stridewise.findings import Cost, Finding
from stridewise.report import Table
from stridewise.report import kernels as kernel_tables
from stridewise.report.autocast import table as autocast_table
from stridewise.report.block import STYLES, placed, titled
from stridewise.report.compiled import lines as compiled_lines
from stridewise.report.console import WIDTH, columns_of, write
from stridewise.report.headline import FINE, cost, folded, headline, measured, period
from stridewise.report.path import path_rows, sole_payer
from stridewise.report.paths import table as path_table
from stridewise.report.prose import hang, quote
from stridewise.report.tables import copy_table, module_table
from stridewise.report.text import one_line
from stridewise.results import Report, numbers

_LABEL = 8

_GLOSS = (
    "A tensor is strided when its elements lie in memory in another order than its dimensions have, as after a"
    " transpose. An operator that cannot work on it copies it first, in the usual order: that is the cost."
)


def render(
    report: Report,
    out: TextIO,
    *,
    tables: Collection[Table] = (),
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write the report, at most 100 columns wide, and its tables as wide as the terminal is, or as `width` says.

    Without colour unless `out` is a terminal that wants it.
    """
    wide = width or columns_of(out)
    write(lambda columns: _lines(report, columns, wide, tables), out, color=color, width=width and min(width, WIDTH))


def _lines(report: Report, width: int, wide: int, tables: Collection[Table]) -> Iterator[Text]:
    sentence = headline(report)
    yield from hang("", quote(sentence, "bold green" if sentence.startswith(FINE) else "bold"), width)
    if report.listed:
        yield Text()
        yield from hang("", Text(_GLOSS, "dim"), width)
    for finding in report.listed:
        yield Text()
        yield from _finding(finding, report, width)
    if report.folded.findings and not report.ok:
        yield Text()
        yield from hang("", Text(folded(report)), width)
    for note in report.notes:
        yield Text()
        yield from hang("note: ", quote(note), width, "bold cyan")
    if report.totals.layout_kernels is not None and (report.listed or "kernels" in tables):
        yield from _after_blank(kernel_tables.summary(report, width))
    if "kernels" in tables:
        yield Text()
        yield from kernel_tables.table(report, wide)
    if "modules" in tables:
        yield Text()
        yield from module_table(report, wide)
    if "paths" in tables:
        yield Text()
        yield from path_table(report, wide)
    if "autocast" in tables:
        yield Text()
        yield from autocast_table(report, wide)
    if "copies" in tables:
        yield Text()
        yield from copy_table(report, wide)
    if report.compiled is not None:
        yield Text()
        yield from compiled_lines(report.compiled, width)
    if report.listed:
        yield Text()
        meaning = f"What a code means: stridewise rule {report.listed[0].code}"
        reasoned = "A fix is reasoned, not tried: `stridewise fix` tries it. " if _has_advice(report) else ""
        yield from hang("", Text(f"{measured(report)} {reasoned}{meaning}", "dim"), width)


def _has_advice(report: Report) -> bool:
    """Whether anything is proposed for the cost that was measured."""
    return any(finding.advice and finding.cost != Cost() for finding in report.listed)


def _after_blank(lines: Iterator[Text]) -> Iterator[Text]:
    for number, line in enumerate(lines):
        if not number:
            yield Text()
        yield line


# ------------------------------------------------------------------------------------------------------ one finding


def _finding(finding: Finding, report: Report, width: int) -> Iterator[Text]:
    style = STYLES[finding.severity]
    times = f"{numbers.figure(finding.count)} times {period(report)}" if finding.count > 1 else ""
    yield from titled(finding, width, times)
    yield from placed(finding.site, style, width)
    for index, row in enumerate(path_rows(finding, width - _LABEL)):
        yield Text.assemble(("  path" if index == 0 else "").ljust(_LABEL), row)
    for label, text in _labelled(finding, report):
        yield from hang(f"  {label}".ljust(_LABEL), text, width, "bold")


def _labelled(finding: Finding, report: Report) -> Iterator[tuple[str, Text]]:
    payer = sole_payer(finding)
    if payer and payer.operand:
        yield "copy", quote(payer.operand)
    if finding.cost != Cost():
        yield "cost", Text(cost(finding.cost, report))
    for evidence in finding.evidence:
        yield "why", quote(evidence)
    if finding.inferred:
        yield "note", Text("Part of this was not recorded, but concluded from what was.")
    if finding.advice:
        yield "fix", quote(finding.advice, "green")
    for edit in finding.edits:
        replacement = f"write `{one_line(edit.replacement)}`" if edit.replacement.strip() else "delete it"
        yield "edit", Text(f"{replacement} in {one_line(edit.file)} ({edit.safety})")
