"""The tables that a terminal report shows when asked: the modules' layouts, and the list of copies."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from stridewise.report.prose import column, hang
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import Copy, ModuleRow, Report, numbers

_MOST_COPIES = 40
_NAME = 32


def module_table(report: Report, width: int) -> Iterator[Text]:
    """Show what layout goes into each module and what comes out, in the order in which they first ran."""
    if not report.modules:
        yield Text(
            "No module was recorded: `stridewise run` and `stridewise.record` record what layouts they take and give."
        )
        return
    legend = "Layouts by module, input → output. > makes the first change itself, * comes out in another layout"
    repeated = next((row.calls for row in report.modules if row.calls > 1), None)
    legend += f", ×{repeated} runs {repeated} times a step." if repeated else "."
    yield from hang("", Text(legend, "bold"), width)
    names = [one_line(row.module or row.type) + (f" ×{row.calls}" if row.calls > 1 else "") for row in report.modules]
    flows = [_sides(row) for row in report.modules]
    cells = min(max(map(cell_len, names)), max(_NAME, width - 4 - max(cell_len(" → ".join(flow)) for flow in flows)))
    for row, name, flow in zip(report.modules, names, flows, strict=True):
        mark = ">" if row.first_change else "*" if row.changed else " "
        shown = f"{mark} {column(shorten_left(name, cells), cells)}  {_flow(flow, width - cells - 4)}"
        yield Text(shown, "bold" if row.first_change else "")


def _sides(row: ModuleRow) -> tuple[str, str]:
    source, result = (one_line(", ".join(side)) or "nothing" for side in (row.inputs, row.outputs))
    return source, "the same" if source == result else result


def _flow(sides: tuple[str, str], cells: int) -> str:
    room = cells - 3
    left = min(cell_len(sides[0]), max(room // 2, room - cell_len(sides[1])))
    return f"{shorten(sides[0], left)} → {shorten(sides[1], room - left)}"


def copy_table(report: Report, width: int) -> Iterator[Text]:
    """List the copies of the whole recording, equal ones together, the largest first, two lines each."""
    groups: dict[tuple[object, ...], list[Copy]] = {}
    for copy in report.copies:
        place = copy.site.where if copy.site else ""
        key = (
            place,
            copy.call,
            copy.op,
            copy.kind,
            copy.change,
            copy.cast,
            copy.sizes,
            copy.source_strides,
            copy.taxed,
        )
        groups.setdefault((*key, copy.strides), []).append(copy)
    ordered = sorted(groups.values(), key=lambda group: -sum(copy.bytes_moved or 0 for copy in group))
    total = numbers.count(len(report.copies), "copy", "copies")
    yield from hang("", Text(f"{total} in the whole recording, equal ones in one row", "bold"), width)
    for group in ordered[:_MOST_COPIES]:
        yield from _copy(group, width)
    if len(ordered) > _MOST_COPIES:
        rest = sum(map(len, ordered[_MOST_COPIES:]))
        yield from hang(
            "", Text(f"… {numbers.count(rest, 'more copy', 'more copies')}: all of them in --format json"), width
        )


def _copy(group: list[Copy], width: int) -> Iterator[Text]:
    first = group[0]
    durations = [copy.duration_ns for copy in group if copy.duration_ns is not None]
    moved, time = sum(copy.bytes_moved or 0 for copy in group), sum(durations)
    figures = numbers.byte_count(moved)
    if len(durations) == len(group) and time:
        figures += f", {numbers.duration(time)}, {numbers.figure(moved / time)} GB/s"
    what = f"{first.kind} {first.change}{' and cast' if first.cast else ''}{', backward' if first.backward else ''}"
    head = f"{f'{len(group)}×':>6} {what} in {one_line(first.op)}: {figures}"
    yield Text(
        shorten(head if first.taxed else f"{head}; not counted: {one_line(first.reason or 'no layout fault')}", width)
    )
    strides = " → ".join("blocked" if side is None else _tuple(side) for side in (first.source_strides, first.strides))
    place = f"{one_line(first.site.where)}, " if first.site else ""
    layouts = "sizes not recorded" if first.sizes is None else f"sizes {_tuple(first.sizes)}, strides {strides}"
    yield Text(shorten(f"       {place}{layouts}", width), "dim")


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"
