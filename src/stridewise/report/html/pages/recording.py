"""The page of a recording: what layout costs, where, and the step as a map."""

from collections.abc import Iterator

from msgspec.structs import replace

from stridewise.report.content import Contents
from stridewise.report.headline import FINE, NOTICEABLE, folded, headline, measured, period, share_of
from stridewise.report.html import timeline as timelines
from stridewise.report.html.cards import cards, meanings
from stridewise.report.html.icicle import Paid, icicle_data, paid_by_call
from stridewise.report.html.model import Bar, Bars, Charts, Figure, Page, Table, Tone
from stridewise.report.html.pages import compiled
from stridewise.report.kernels import CAUSES, plain_name
from stridewise.report.tables import module_groups, module_name
from stridewise.results import Kernel, Report, numbers

_KINDS = {
    "library": "inside libraries",
    "compiled": "in generated kernels",
    "gradient": "in backward",
    "hidden": "hidden in operators",
    "implicit": "by reshapes",
    "explicit": "asked for",
}
_MOST_LAYERS = 400
_MOST_ROWS = 200
_MOST_KERNELS = 60


def page(report: Report, contents: Contents) -> Page:
    """A report of a recording, with what torch.compile did if that was watched."""
    whole = report.totals.share_of if report.totals.steps_found else share_of(report)
    layers = timelines.layers(report.timeline) if report.timeline is not None else ()
    made = cards(report.listed, period=period(report), share_of=whole, contents=contents)
    found = Page(
        command="stridewise",
        verdict=headline(report),
        tone=_tone(report),
        figures=tuple(_figures(report)),
        cards=made,
        folded=folded(report),
        layers=layers[:_MOST_LAYERS],
        layers_left=max(len(layers) - _MOST_LAYERS, 0),
        map_note=_map_note(report),
        bars=tuple(_bars(report)),
        tables=tuple(table for table in _tables(report) if table.rows),
        notes=report.notes,
        measured=measured(report),
        meanings=meanings(report.listed),
    )
    return found if report.compiled is None else _with_compiled(found, compiled.page(report.compiled, contents))


def _with_compiled(recorded: Page, of_compiled: Page) -> Page:
    """Both on one page: the cards of what was compiled stand behind the others."""
    renamed = tuple(replace(card, id=f"compiled-{card.id}") for card in of_compiled.cards)
    known = {meaning.code for meaning in recorded.meanings}
    return replace(
        recorded,
        tone="wrong" if "wrong" in (recorded.tone, of_compiled.tone) else max(recorded.tone, of_compiled.tone),
        remarks=(*recorded.remarks, of_compiled.verdict),
        cards=(*recorded.cards, *renamed),
        bars=(*recorded.bars, *of_compiled.bars),
        tables=(*recorded.tables, *of_compiled.tables),
        notes=(*recorded.notes, *of_compiled.notes),
        meanings=(*recorded.meanings, *(row for row in of_compiled.meanings if row.code not in known)),
    )


def _tone(report: Report) -> Tone:
    if any(finding.severity == "error" for finding in report.findings):
        return "wrong"
    return "fine" if headline(report).startswith(FINE) else "look"


def _figures(report: Report) -> Iterator[Figure]:
    totals = report.totals
    each = "a step" if totals.steps_found else "in this run"
    if totals.share is not None:
        noticeable = "" if totals.share >= NOTICEABLE or not totals.share else "below 1 %: hardly to be felt"
        yield Figure(numbers.share(totals.share), f"of {share_of(report)}", noticeable)
    elif (found := totals.layout_kernels) is not None and found.share is not None:
        yield Figure(f"≥ {numbers.share(found.share)}", f"of {found.share_of}", "kernels that only change layout")
    else:
        yield Figure("not measured", "share of time")
    if totals.copies is None:
        yield Figure("not measured", "copies", "recorded without strides")
        yield Figure("not measured", "bytes moved")
    else:
        largest = max(totals.by_kind.items(), key=lambda item: item[1].copies or 0, default=None)
        detail = f"most of them {_KINDS[largest[0]]}" if largest is not None and (largest[1].copies or 0) > 1 else ""
        yield Figure(numbers.figure(totals.copies), f"{'copy' if totals.copies == 1 else 'copies'} {each}", detail)
        moved = "not measured" if totals.bytes_moved is None else numbers.byte_count(totals.bytes_moved)
        yield Figure(moved, f"moved by them {each}", "read and written")
    if totals.duration_ns is not None:
        length = "" if totals.step_ns is None else f"of {numbers.duration(totals.step_ns)}"
        yield Figure(numbers.duration(totals.duration_ns), f"in copies {each}", length)
    else:
        length = "not measured" if totals.step_ns is None else numbers.duration(totals.step_ns)
        yield Figure(length, "a step takes" if totals.steps_found else "the run took")


def _map_note(report: Report) -> str:
    steps = report.totals.steps
    return f"It is the first of {steps} steps; the figures above are means of all." if steps > 1 else ""


def charts(report: Report, page: Page) -> Charts:
    """What the script of a report's page draws."""
    cards = zip(report.listed, (card.id for card in page.cards), strict=False)  # those of compiled code come behind
    step = report.timeline
    of_step = timelines.map_data(step, cards) if step is not None and step.calls else None
    return Charts(map=of_step, icicle=icicle_data(report))


# ------------------------------------------------------------------------------------------------- kernels, and tables


def _bars(report: Report) -> Iterator[Bars]:
    found = report.totals.layout_kernels
    if found is None:
        return
    busy = sum(row.busy_ns for row in report.streams)
    causes = [*found.by_cause.items(), *([("possible", found.possible)] if found.possible.count else [])]
    spent = sum(time.duration_ns for _, time in causes)
    rows = [
        Bar(
            CAUSES.get(cause, cause),
            time.duration_ns / busy if busy else 0,
            f"{numbers.count(time.count, 'kernel')}, {numbers.duration(time.duration_ns)}"
            + (f", {numbers.share(time.share)}" if time.share is not None else ""),
            cause,
        )
        for cause, time in causes
    ]
    if busy:
        count = sum(row.kernels for row in report.streams) - sum(time.count for _, time in causes)
        rest = max(busy - spent, 0)
        text = f"{numbers.count(max(count, 0), 'kernel')}, {numbers.duration(rest)}, {numbers.share(rest / busy)}"
        rows.append(Bar("computes", rest / busy, text, "computes"))
    if rows:
        yield Bars(f"Kernel time {period(report)}, by cause", tuple(rows), "Added up over streams and devices.")


def _tables(report: Report) -> Iterator[Table]:
    modules = module_groups(report)
    layout = [row for row in report.kernels if row.cause]
    others = [row for row in report.kernels if not row.cause]
    yield Table(
        "Kernels of the whole recording",
        ("kernel", "cause", "launched by", "count", "time", "share"),
        tuple(map(_kernel, [*layout, *others][:_MOST_KERNELS])),
        _cut(len(report.kernels), _MOST_KERNELS),
        numeric=(3, 4, 5),
        code=(0,),
        folded=True,
    )
    yield Table(
        f"Copied bytes {period(report)}, by module and call",
        ("module", "call", "where", "copies", "moved"),
        tuple(_paid(row, report) for row in paid_by_call(report)[:_MOST_ROWS]),
        numeric=(3, 4),
        code=(0, 1, 2),
        folded=True,
    )
    yield Table(
        "Modules: what goes in, and what comes out",
        ("module", "type", "calls a step", "in", "out", ""),
        tuple(
            (
                row.module if len(rows) == 1 else module_name(rows),
                row.type,
                numbers.figure(row.calls),
                ", ".join(row.inputs),
                ", ".join(row.outputs),
                "first change" if any(row.first_change for row in rows) else "changes" if row.changed else "",
            )
            for rows in modules[:_MOST_ROWS]
            for row in rows[:1]
        ),
        _cut(len(modules), _MOST_ROWS),
        numeric=(2,),
        code=(0, 3, 4),
        folded=True,
    )
    yield Table(
        "Which implementation ran",
        ("operator", "where", "backend", "dtype", "operands", "count", "missed"),
        tuple(
            (
                row.op,
                row.site.where if row.site else "",
                row.backend,
                row.dtype or "",
                ", ".join(row.operands),
                numbers.figure(row.count),
                row.missed or "",
            )
            for row in report.paths[:_MOST_ROWS]
        ),
        _cut(len(report.paths), _MOST_ROWS),
        numeric=(5,),
        code=(0, 1, 4),
        folded=True,
    )


def _paid(row: Paid, report: Report) -> tuple[str, ...]:
    steps = report.totals.steps
    return (row.module, row.call, row.where, numbers.figure(row.copies / steps), numbers.byte_count(row.moved / steps))


def _kernel(row: Kernel) -> tuple[str, ...]:
    launched = [row.op] if row.op else []
    launched += [row.site.where] if row.site and row.site.file else []
    share = numbers.share(row.share) if row.share is not None else ""
    figures = (numbers.figure(row.count), numbers.duration(row.duration_ns), share)
    return (plain_name(row.name), row.cause or "", ", ".join(launched), *figures)


def _cut(rows: int, most: int) -> str:
    return f"{numbers.count(rows - most, 'more row')}: all of them in --format json." if rows > most else ""
