"""What differs between two reports: one sentence, then what grew most, then the figures of a step."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TextIO

from rich.text import Text

from stridewise.findings import Severity, Site
from stridewise.report import html, json, junit, markdown, numbers
from stridewise.report.console import write
from stridewise.report.github import annotation
from stridewise.report.prose import hang, quote
from stridewise.report.text import one_line, shorten
from stridewise.results import CostDelta, Delta, Diff, FindingDiff, KernelDiff, PayerDiff, Trend

DiffFormat = Literal["text", "json", "github", "junit", "markdown", "html"]

_NAME = "stridewise diff"
_LABEL = 10
_CELL = 14
_MOST_FINDINGS = 40
_MOST_PAYERS = 6
_MOST_KERNELS = 10
WORSE: tuple[Trend, ...] = ("appeared", "grew", "changed")
BETTER: tuple[Trend, ...] = ("shrank", "went")


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


def headline(diff: Diff) -> str:
    """Say in one sentence whether layout got worse, and by what."""
    totals, cost = diff.totals, diff.totals.cost
    if not diff.ok:
        return f"Layout got worse: {_changes(diff, grown=True)}."
    if totals.trend == "unknown":
        sides = [side for side, copies in (("OLD", cost.copies.old), ("NEW", cost.copies.new)) if copies is None]
        were = "were" if len(sides) > 1 else "was"
        return f"Whether layout got worse cannot be told: {' and '.join(sides)} {were} recorded without strides."
    if totals.trend in WORSE:
        return f"Nothing got worse beyond the tolerance of {numbers.share(diff.tolerance)}: {_changes(diff)}."
    if totals.trend in BETTER or _hazards(diff, BETTER):
        return f"Nothing got worse: {_changes(diff)}."
    if not cost.copies.new:
        return "Nothing got worse: no tensor is copied because of its layout, as before."
    copies = numbers.count(cost.copies.new, "copy", "copies")
    moved = "" if cost.bytes_moved.new is None else f" and {numbers.byte_count(cost.bytes_moved.new)}"
    return f"Nothing got worse: {copies}{moved} {_per(diff)}, as before{' in all' if diff.listed else ''}."


def worse(diff: Diff) -> Iterator[tuple[Site | None, str, str]]:
    """What got worse beyond the tolerance: where, the code, and by how much. Without a place if it is spread."""
    rows = [row for row in diff.listed if row.trend in WORSE] if not diff.ok else []
    for row in rows:
        yield row.site, row.code, f"{row.title} {row.trend}: {_message(row)}"
    if not diff.ok and not rows:
        yield None, _NAME, headline(diff)


def _changes(diff: Diff, *, grown: bool = False) -> str:
    """Name the differences; only those that are too large, if asked."""
    copies, moved = diff.totals.cost.copies, diff.totals.cost.bytes_moved
    parts = []
    if wrong := _hazards(diff, ("appeared", "grew")):
        parts.append(f"results are wrong in {numbers.count(wrong, 'new place')}")
    if (right := _hazards(diff, BETTER)) and not grown:
        parts.append(f"results are no longer wrong in {numbers.count(right, 'place')}")
    if copies.delta and (not grown or "copies" in diff.worse):
        change = numbers.count(abs(copies.delta), "copy", "copies")
        pair = _pair(copies, numbers.figure, _exact_figure)
        parts.append(f"{change} {'more' if copies.delta > 0 else 'fewer'} {_per(diff)} ({pair})")
    if moved.delta and (not grown or "bytes_moved" in diff.worse):
        pair = _pair(moved, numbers.byte_count, _exact_bytes)
        more = "more" if moved.delta > 0 else "less"
        per = "" if any("cop" in part for part in parts) else f" {_per(diff)}"
        parts.append(f"{numbers.byte_count(abs(moved.delta))} {more} to move{per} ({pair})")
    return ", and ".join(parts)


def _hazards(diff: Diff, trends: Sequence[Trend]) -> int:
    return sum("error" in (row.old_severity, row.new_severity) and row.trend in trends for row in diff.findings)


def _per(diff: Diff) -> str:
    return "a step" if diff.old.steps_found or diff.new.steps_found else "in this run"


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
    count = _both(row.count, numbers.figure, _exact_figure)
    time = _both(row.duration_ns, numbers.duration)
    return Text(f"{shorten(one_line(row.name), cells)}{of} ({row.cause}): {count} a step, {time}")


def _folded(diff: Diff) -> str:
    rows = diff.folded
    if not rows:
        return ""
    each = f"below {numbers.share(diff.min_share)} of a step each"
    found = numbers.count(len(rows), "more finding" if diff.listed else "finding")
    verb = "differs" if len(rows) == 1 else "differ"
    old, new = (sum(getattr(row.cost.copies, side) or 0 for row in rows) for side in ("old", "new"))
    copies = _pair(Delta(old, new, new - old), numbers.figure, _exact_figure)
    return f"{found} {each} {verb}, together {copies} copies."


def _table(diff: Diff) -> Iterator[Text]:
    per = "a step" if diff.old.steps_found or diff.new.steps_found else "this run"
    yield Text(f"{per:<16}{'OLD':>{_CELL}}{'NEW':>{_CELL}}{'difference':>{_CELL}}", "bold")
    for label, old, new, difference in totals_rows(diff):
        yield Text(f"{label:<16}{old:>{_CELL}}{new:>{_CELL}}{difference:>{_CELL}}".rstrip())


def totals_rows(diff: Diff) -> Iterator[tuple[str, str, str, str]]:
    """What is compared, both figures and the difference; figures that are 0 on both sides are left out."""
    totals, cost = diff.totals, diff.totals.cost
    rows: list[tuple[str, Delta, Callable[[float], str], Callable[[float], str] | None]] = [
        ("wrong results", totals.hazards, numbers.figure, None),
        ("copies", cost.copies, numbers.figure, _exact_figure),
        ("bytes moved", cost.bytes_moved, numbers.byte_count, _exact_bytes),
        ("time in copies", cost.duration_ns, numbers.duration, None),
        ("share", cost.share, numbers.share, _exact_share),
        ("layout kernels", totals.layout_kernels, numbers.figure, _exact_figure),
        ("wall time", totals.step_ns, numbers.duration, None),
    ]
    for label, delta, show, exact in rows:
        if (delta.old or delta.new) or label == "copies":
            old, new = _shown(delta, show, exact)
            yield label, old, new, "" if delta.delta is None else _signed(delta.delta, show)


def measured(diff: Diff) -> str:
    """What the figures were measured on."""
    same = sum(row.trend == "same" for row in diff.findings)
    kept = f"{numbers.count(same, 'finding')} {'is' if same == 1 else 'are'} as before. " if same else ""
    sides = [numbers.count(side.steps, "step") if side.steps_found else "a whole run" for side in (diff.old, diff.new)]
    measured = f"Both are {sides[0]}" if sides[0] == sides[1] else f"OLD is {sides[0]}, NEW {sides[1]}"
    return f"{kept}{measured}. Times differ from run to run: they are shown, not judged."


# ------------------------------------------------------------------------------------------------------------- figures


def figures(row: FindingDiff) -> str:
    """What is different about a finding: its severity, cost or count."""
    parts = []
    if row.old_severity != row.new_severity and row.old_severity and row.new_severity:
        parts.append(f"{row.old_severity} → {row.new_severity}")
    if row.cost.copies.old or row.cost.copies.new:
        parts.append(cost_text(row.trend, row.cost))
    elif row.old_severity is None or row.new_severity is None:
        parts.append(numbers.count(row.count.new or row.count.old or 0, "time"))
    elif row.count.delta:
        parts.append(f"{_both(row.count, numbers.figure)} times")
    return ", ".join(parts)


def cost_text(trend: Trend, cost: CostDelta) -> str:
    """Both figures of a cost; one where there is one only."""
    if trend == "unknown":
        side, other = ("OLD", "NEW") if cost.copies.new is None else ("NEW", "OLD")
        one = CostDelta(*(_only(delta, side) for delta in _deltas(cost)))
        return f"{cost_text('same', one)} in {side}, not known in {other}"
    if trend in ("appeared", "went"):
        cost = CostDelta(*(_only(delta, "NEW" if trend == "appeared" else "OLD") for delta in _deltas(cost)))
    copies, moved, time, share = _deltas(cost)
    count = _both(copies, numbers.figure, _exact_figure)
    parts = [f"{count} {'copy' if count == '1' else 'copies'}"]
    if moved.old or moved.new:
        parts.append(_both(moved, numbers.byte_count, _exact_bytes))
    if time.old is not None or time.new is not None:
        parts.append(_both(time, numbers.duration))
    if share.old is not None or share.new is not None:
        parts.append(_both(share, numbers.share, _exact_share))
    return ", ".join(parts)


def _deltas(cost: CostDelta) -> tuple[Delta, Delta, Delta, Delta]:
    return cost.copies, cost.bytes_moved, cost.duration_ns, cost.share


def _only(delta: Delta, side: str) -> Delta:
    figure = delta.new if side == "NEW" else delta.old
    return Delta(figure, figure, 0)


def _both(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None = None) -> str:
    old, new = _shown(delta, show, exact)
    return old if old == new else f"{old} → {new}"


def _pair(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None = None) -> str:
    return " → ".join(_shown(delta, show, exact))


def _shown(delta: Delta, show: Callable[[float], str], exact: Callable[[float], str] | None) -> tuple[str, str]:
    """Write both figures, with as many digits as it takes to tell them apart."""
    old, new = ("not known" if figure is None else show(figure) for figure in (delta.old, delta.new))
    if old == new and delta.delta and delta.old is not None and delta.new is not None and exact:
        old, new = exact(delta.old), exact(delta.new)
    return old, new


def _signed(difference: float, show: Callable[[float], str]) -> str:
    if not difference:
        return "0"
    return f"{'+' if difference > 0 else '-'}{show(abs(difference)).removeprefix('< ')}"


def _exact_figure(value: float) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _exact_bytes(value: float) -> str:
    return f"{value:,.0f} B"


def _exact_share(value: float) -> str:
    return f"{_exact_figure(100 * value)} %"


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
