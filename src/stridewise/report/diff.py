"""What differs between two reports: one sentence, then what grew most, then the figures of a step."""

from collections.abc import Iterator
from typing import Literal, TextIO

from rich.text import Text

from stridewise.findings import Severity, Site
from stridewise.report import html, json, junit, markdown
from stridewise.report.console import write
from stridewise.report.diff_words import (
    BETTER,
    WORSE,
    both,
    cost_text,
    exact_figure,
    figures,
    headline,
    measured,
    pair,
    totals_rows,
)
from stridewise.report.github import annotation
from stridewise.report.prose import hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results import Delta, Diff, FindingDiff, KernelDiff, PayerDiff, Trend, numbers

DiffFormat = Literal["text", "json", "github", "junit", "markdown", "html"]

_NAME = "stridewise diff"
_LABEL = 10
_CELL = 14
_MOST_FINDINGS = 40
_MOST_PAYERS = 6
_MOST_KERNELS = 10


def render(
    diff: Diff, out: TextIO, *, format: DiffFormat = "text", color: bool | None = None, width: int | None = None
) -> None:
    """Write it as text of at most 100 columns, as JSON with all rows, or as CI systems read it."""
    if format == "json":
        out.write(json.dumps(diff))
    elif format == "html":
        html.render(diff, out)
    elif format == "github":
        out.writelines(_annotations(diff))
    elif format == "markdown":
        out.write(markdown.page(_NAME, headline(diff), diff.notes, ("", "Finding", "Where", "Figures"), _rows(diff)))
    elif format == "junit":
        out.write(junit.report(_NAME, _cases(diff), headline(diff), diff.notes))
    else:
        write(lambda columns: _lines(diff, columns), out, color=color, width=width)


def worse(diff: Diff) -> Iterator[tuple[Site | None, str, str]]:
    """What got worse beyond the tolerance: where, the code, and by how much. Without a place if it is spread."""
    rows = [row for row in diff.listed if row.trend in WORSE] if not diff.ok else []
    for row in rows:
        yield row.site, row.code, f"{row.title} {row.trend}: {_message(row)}"
    if not diff.ok and not rows:
        yield None, _NAME, headline(diff)


# ---------------------------------------------------------------------------------------------------------------- text


def _lines(diff: Diff, width: int) -> Iterator[Text]:
    yield from hang("", Text(headline(diff), "bold green" if diff.ok else "bold red"), width)
    for row in diff.listed[:_MOST_FINDINGS]:
        yield Text()
        yield from _finding(row, width)
    if len(diff.listed) > _MOST_FINDINGS:
        rest = numbers.count(len(diff.listed) - _MOST_FINDINGS, "more finding")
        yield from _apart("", f"… {rest}: all of them in --format json", width)
    yield from _apart("", _folded(diff), width)
    kernels = [row for row in diff.kernels if row.trend != "same"]
    if kernels:
        yield Text()
        yield Text("Kernels that only change layout", "bold")
        for kernel in kernels[:_MOST_KERNELS]:
            yield from hang(kernel.trend.ljust(_LABEL), _kernel(kernel, width - _LABEL), width, _style(kernel.trend))
        if len(kernels) > _MOST_KERNELS:
            yield Text(f"… {numbers.count(len(kernels) - _MOST_KERNELS, 'more kernel')}: all in --format json")
    for note in diff.notes:
        yield from _apart("note: ", note, width)
    if diff.listed or diff.folded or kernels or diff.totals.trend != "same":
        yield Text()
        yield from _table(diff)
        yield from _apart("", measured(diff), width, dim=True)


def _apart(label: str, text: str, width: int, *, dim: bool = False) -> Iterator[Text]:
    if text:
        yield Text()
        yield from hang(label, quote(text, "dim" if dim else ""), width, "bold cyan")


def _finding(row: FindingDiff, width: int) -> Iterator[Text]:
    title = Text.assemble((one_line(f"{row.code} {row.title}"), "bold"), " ", (_where(row.site), "blue"))
    if row.old_site is not None and _moved(row.old_site, row.site):
        title.append(f", {_was(row.old_site, row.site)}", "dim")
    yield from hang(row.trend.ljust(_LABEL), title, width, _style(row.trend))
    indent = " " * _LABEL
    if row.site.file is not None and row.site.expression:
        yield Text(shorten(f"{indent}{one_line(row.site.expression)}", width))
    yield from hang(indent, Text(figures(row)), width)
    payers = [payer for payer in row.payers if payer.trend != "same"]
    if row.trend in ("grew", "shrank", "changed") and len(row.payers) > 1:
        for payer in payers[:_MOST_PAYERS]:
            yield from hang(f"{indent}  ", _payer(payer, width // 2), width)
        if len(payers) > _MOST_PAYERS:
            yield Text(f"{indent}  … {len(payers) - _MOST_PAYERS} more")


def _payer(payer: PayerDiff, cells: int) -> Text:
    name = one_line(payer.site.expression or payer.op)
    place = one_line(payer.site.where)
    figures = cost_text(payer.trend, payer.cost)
    return Text.assemble(shorten(name, cells), " ", (f"at {place}", "blue"), f" {payer.trend}: {figures}")


def _kernel(row: KernelDiff, cells: int) -> Text:
    of = f" of {one_line(row.op)}" if row.op else ""
    count = both(row.count, numbers.figure, exact_figure)
    time = both(row.duration_ns, numbers.duration)
    return Text(f"{shorten(one_line(row.name), cells)}{of} ({row.cause}): {count} a step, {time}")


def _folded(diff: Diff) -> str:
    rows = diff.folded
    if not rows:
        return ""
    each, differ = (" each", "differ, together") if len(rows) > 1 else ("", "differs:")
    below = f"below {numbers.share(diff.min_share)} of a step{each}"
    found = numbers.count(len(rows), "more finding" if diff.listed else "finding")
    old, new = (sum(getattr(row.cost.copies, side) or 0 for row in rows) for side in ("old", "new"))
    copies = pair(Delta(old, new, new - old), numbers.figure, exact_figure)
    return f"{found} {below} {differ} {copies} {'copy' if copies == '1' else 'copies'}."


def _table(diff: Diff) -> Iterator[Text]:
    per = "a step" if diff.old.steps_found or diff.new.steps_found else "this run"
    yield Text(f"{per:<16}{'OLD':>{_CELL}}{'NEW':>{_CELL}}{'difference':>{_CELL}}", "bold")
    for label, old, new, difference in totals_rows(diff):
        yield Text(f"{label:<16}{old:>{_CELL}}{new:>{_CELL}}{difference:>{_CELL}}".rstrip())


# ------------------------------------------------------------------------------------------------------------- figures


def _where(site: Site) -> str:
    place = one_line(site.where)
    function = f", in {one_line(site.function)}" if site.function else ""
    return f"at {place}{function}"


def _was(old: Site, new: Site) -> str:
    near = (old.file, old.function) == (new.file, new.function) and old.line is not None
    return f"was line {old.line}" if near else f"was {_where(old)}"


def _moved(old: Site, new: Site) -> bool:
    return (old.where, old.function) != (new.where, new.function)


def _style(trend: Trend) -> str:
    return "bold red" if trend in WORSE else "bold green" if trend in BETTER else "bold cyan"


# ------------------------------------------------------------------------------------------------------ for CI systems


def _annotations(diff: Diff) -> Iterator[str]:
    for row in diff.listed:
        if row.trend in WORSE:
            severity: Severity = "note" if diff.ok else "error" if row.new_severity == "error" else "warning"
            yield annotation(severity, f"{row.code} {row.title} {row.trend}", _message(row), row.site)
    yield annotation("note" if diff.ok else "error", _NAME, headline(diff))
    for note in diff.notes:
        yield annotation("note", _NAME, note)


def _rows(diff: Diff) -> Iterator[tuple[str, ...]]:
    for row in diff.listed:
        yield row.trend, f"{row.code} {row.title}", f"`{one_line(row.site.where)}`", _message(row)


def _cases(diff: Diff) -> Iterator[junit.Case]:
    outcome: Literal["passed", "failure"] = "passed" if diff.ok else "failure"
    yield junit.Case(_NAME, "nothing got worse", outcome, "worse", headline(diff), headline(diff))
    for row in diff.listed:
        if row.trend in WORSE:
            name = junit.case_name(row.code, row.title, row.site)
            text = f"{row.trend}: {_message(row)}"
            yield junit.Case(row.site.file or _NAME, name, outcome, row.code, text, text, row.site.file, row.site.line)


def _message(row: FindingDiff) -> str:
    expression = f"`{one_line(row.site.expression)}`: " if row.site.expression else ""
    return f"{expression}{figures(row)}"
