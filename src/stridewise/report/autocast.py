"""The part of a terminal report that says what autocast cast, region by region."""

from collections.abc import Hashable, Iterator, Sequence

import msgspec
from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Site
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import (
    AutocastOperator,
    AutocastRegion,
    AutocastUse,
    CastAndCopy,
    CastCost,
    RepeatedCast,
    Report,
    numbers,
)

CONTIGUITY = "Contiguity does not gate autocast: strided and contiguous operands are cast alike."
_MOST_REGIONS, _MOST_ROWS = 12, 16
_COUNT = 7
_INDENT = " " * (_COUNT + 2)
_OP, _DTYPES = 30, 30
_PLACE, _EXPRESSION = 40, 48


def table(report: Report, width: int) -> Iterator[Text]:
    """Say what ran in which dtype and what was cast for it, per step; then casts made again, and casts with copies."""
    use = report.autocast
    if use is None:
        unseen = "" if report.totals.copies is not None else " A trace without dtypes does not show it."
        yield from hang("", Text(f"No use of autocast was recorded.{unseen}"), width)
        return
    yield from hang("", Text(f"Autocast: {_total(use, report)}", "bold"), width)
    yield from hang("", Text(CONTIGUITY, "dim"), width)
    if not use.recorded:
        note = "Regions of autocast were not recorded: `stridewise run` and `stridewise.record` record them."
        yield from hang("", quote(note), width)
    shown = [region for region in use.regions if region.operators or region.casts.count][:_MOST_REGIONS]
    for region in shown:
        yield Text()
        yield from _region(region, use, width)
    silent = [region for region in use.regions if region not in shown]
    if silent:
        yield Text()
        yield from hang("", Text(_silent(silent, "more " if shown else "")), width)
    if use.repeated:
        yield Text()
        yield from _repeated(use.repeated, width)
    if use.with_copies:
        yield Text()
        yield from _with_copies(use.with_copies, width)
    if use.unidentified:
        yield Text()
        yield from hang("", Text(_unidentified(use)), width)


def _total(use: AutocastUse, report: Report) -> str:
    when = "a step" if report.totals.steps_found else "in this run"
    if not use.cost.count:
        return "it was on, and cast nothing"
    parts = [f"{_cost(use.cost)} {when} for operators"]
    if use.cache_hits:
        parts.append(f"{numbers.count(use.cache_hits, 'operand')} came from its cache")
    if use.backward.count:
        parts.append(f"backward cast {numbers.count(use.backward.count, 'gradient')} back ({_figures(use.backward)})")
    return "; ".join(parts)


def _cost(cost: CastCost) -> str:
    return f"{numbers.count(cost.count, 'cast')}, {_figures(cost)}"


def _figures(cost: CastCost) -> str:
    time = numbers.duration(cost.duration_ns)
    return time if cost.bytes_moved is None else f"{numbers.byte_count(cost.bytes_moved)}, {time}"


# ------------------------------------------------------------------------------------------------------- one region


def _region(region: AutocastRegion, use: AutocastUse, width: int) -> Iterator[Text]:
    yield from hang("", quote(_title(region, use), "bold"), width)
    if region.casts.count:
        text = _cost(region.casts)
        if region.weights:
            text += f", {numbers.figure(region.weights)} of parameters"
        if region.cache_hits:
            text += f"; {numbers.count(region.cache_hits, 'operand')} from the cache"
        if region.backward.count:
            text += f"; {numbers.count(region.backward.count, 'gradient')} cast back"
        yield from hang("  ", Text(text), width)
    operators = _alike(region.operators)
    shown = operators[:_MOST_ROWS]
    words = [(_name(row), _dtypes(row), _casts(row)) for row in shown]
    limits = (_OP, _DTYPES, width)
    cells = [
        min(limit, max(map(cell_len, texts))) for limit, texts in zip(limits, zip(*words, strict=True), strict=False)
    ]
    for row, texts in zip(shown, words, strict=True):
        yield _operator(row, texts, cells, width)
    rest = operators[_MOST_ROWS:]
    if rest:
        more = numbers.count(sum(row.count for row in rest), "more operator")
        yield from hang(_INDENT, Text(f"… {more} in {len(rest)} rows: all of them in --format json"), width)


def _alike(rows: Sequence[AutocastOperator]) -> list[AutocastOperator]:
    """Rows that would read the same, since their places differ in columns only, as one."""
    found: dict[Hashable, AutocastOperator] = {}
    for row in rows:
        key = row.op, tuple(dict.fromkeys(row.given)), row.ran, row.cast, row.site and row.site.where
        same = found.get(key)
        found[key] = row if same is None else _together(same, row)
    return sorted(found.values(), key=lambda row: -row.count)


def _together(one: AutocastOperator, other: AutocastOperator) -> AutocastOperator:
    return msgspec.structs.replace(
        one,
        count=one.count + other.count,
        casts=one.casts + other.casts,
        cache_hits=one.cache_hits + other.cache_hits,
    )


def _title(region: AutocastRegion, use: AutocastUse) -> str:
    if region.device is None:
        return "Where no region of autocast was recorded"
    state = f"{region.device}, {region.dtype}" if region.enabled else f"{region.device}, off"
    if region.enabled and not region.cache:
        state += ", no cache"
    times = numbers.figure(region.entered or 0)
    often = "" if times == "1" else f", entered {times} times"
    if region.site is None:
        where = "Entered before the recording began"
    else:
        expression = one_line(region.site.expression or "autocast")
        where = f"{shorten_left(one_line(region.site.where), _PLACE)} `{shorten(expression, _EXPRESSION)}`"
    if region.within is not None:
        outer = use.regions[region.within].site
        where += f", inside that of {shorten_left(one_line(outer.where), _PLACE) if outer else 'before'}"
    return f"{where}: {state}{often}"


def _name(row: AutocastOperator) -> str:
    return one_line(row.op).removeprefix("aten::")


def _dtypes(row: AutocastOperator) -> str:
    given = ", ".join(dict.fromkeys(row.given))
    if not row.cast:
        return f"{one_line(given)}, as given" if given == row.ran else one_line(f"{given}, ran in {row.ran}")
    return one_line(f"{given or '?'} → {row.ran or '?'}")


def _casts(row: AutocastOperator) -> str:
    parts = [numbers.count(row.casts, "cast")] if row.casts else []
    parts += [f"{numbers.figure(row.cache_hits)} from cache"] if row.cache_hits else []
    return ", ".join(parts)


def _operator(row: AutocastOperator, texts: Sequence[str], cells: Sequence[int], width: int) -> Text:
    words = "  ".join(column(shorten(text, cell), cell) for text, cell in zip(texts, cells, strict=True))
    line = f"{numbers.figure(row.count):>{_COUNT}}× {words}"
    room = width - cell_len(line) - 2
    place = _place(row.site)
    if place and room > len(place) // 2:
        return Text.assemble((line, "" if row.cast else "dim"), "  ", (shorten_left(place, room), "dim"))
    return Text(shorten(line.rstrip(), width), "" if row.cast else "dim")


def _place(site: Site | None) -> str:
    return "" if site is None or site.where == "unknown place" else shorten_left(one_line(site.where), _PLACE)


def _silent(regions: Sequence[AutocastRegion], more: str) -> str:
    count = numbers.count(len(regions), f"{more}region")
    if any(region.operators or region.casts.count for region in regions):
        return f"… {count}: all of them in --format json"
    return f"{count} held no convolution, product or attention, and autocast cast nothing in them."


# ----------------------------------------------------------------------------------------------- the same tensor again


def _repeated(rows: Sequence[RepeatedCast], width: int) -> Iterator[Text]:
    again = _sum([row.again for row in rows])
    title = f"Cast again although unchanged: {_cost(again)}"
    yield from hang("", Text(title, "bold"), width)
    for row in rows[:_MOST_ROWS]:
        head = f"{numbers.figure(row.again.count):>{_COUNT}}× {_tuple(row.sizes)} {row.source_dtype} → {row.dtype}"
        line = f"{head}, {_figures(row.again)}: {_tensor(row.tensor)}"
        yield from _quoted(line, width)
        places = list(dict.fromkeys(filter(None, map(_place, row.sites))))
        listed = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        yield from hang(_INDENT, quote(f"{row.reason}; in {listed}" if listed else row.reason, "dim"), width)
    yield from _more(len(rows) - _MOST_ROWS, width)


def _with_copies(rows: Sequence[CastAndCopy], width: int) -> Iterator[Text]:
    title = f"Cast, and copied to another memory order: {_pairs(_sum([row.cost for row in rows]))}"
    yield from hang("", Text(title, "bold"), width)
    for row in rows[:_MOST_ROWS]:
        head = f"{numbers.figure(row.cost.count):>{_COUNT}}× {_tuple(row.sizes)} {row.source_dtype} → {row.dtype}"
        how = "in one pass" if row.one_pass else "in two passes"
        yield from _quoted(f"{head} {how}, {_figures(row.cost)}: {_tensor(row.tensor)}", width)
        place = _place(row.site)
        strides = f"strides {_tuple(row.source_strides)} → {_tuple(row.strides)}"
        text = f"for {one_line(row.op).removeprefix('aten::')}{f' in {place}' if place else ''}, {strides}"
        yield from hang(_INDENT, Text(text, "dim"), width)
    yield from _more(len(rows) - _MOST_ROWS, width)


def _quoted(line: str, width: int) -> Iterator[Text]:
    """A row whose count stands before what is wrapped."""
    head, _, rest = line.partition("× ")
    yield from hang(f"{head}× ", quote(rest), width)


def _more(rows: int, width: int) -> Iterator[Text]:
    if rows > 0:
        yield from hang(_INDENT, Text(f"… {numbers.count(rows, 'more row')}: all of them in --format json"), width)


def _pairs(cost: CastCost) -> str:
    return f"{numbers.count(cost.count, 'pair')}, {_figures(cost)}"


def _sum(costs: Sequence[CastCost]) -> CastCost:
    moved = [cost.bytes_moved for cost in costs if cost.bytes_moved is not None]
    return CastCost(
        count=sum(cost.count for cost in costs),
        bytes_moved=sum(moved) if len(moved) == len(costs) else None,
        duration_ns=sum(cost.duration_ns for cost in costs),
    )


def _tensor(name: str | None) -> str:
    return one_line(name or "a tensor that no call of the program was seen to make")


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"


def _unidentified(use: AutocastUse) -> str:
    what = numbers.count(use.unidentified, "cast reads a tensor", "casts read tensors")
    why = "made inside an operator" if use.recorded else "which only a recording of stridewise names"
    return f"{what} {why}: it can't be told whether the same was cast before."
