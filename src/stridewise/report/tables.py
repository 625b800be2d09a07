"""The tables that a terminal report shows when asked: the modules' layouts, and the list of copies."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from stridewise.report.prose import column, hang, wrapped
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
    groups = module_groups(report)
    legend = "Layouts by module, input → output. > makes the first change itself, * comes out in another layout"
    repeated = next((rows[0].calls for rows in groups if len(rows) == 1 and rows[0].calls > 1), None)
    legend += f", ×{repeated} runs {repeated} times a step" if repeated else ""
    made = next((rows for rows in groups if len(rows) > 1), None)
    legend += f', "{len(made)} of them" were made while the model ran' if made else ""
    yield from hang("", Text(f"{legend}.", "bold"), width)
    names = [module_name(rows) for rows in groups]
    flows = [_sides(rows[0]) for rows in groups]
    cells = min(max(map(cell_len, names)), max(_NAME, width - 4 - max(cell_len(" → ".join(flow)) for flow in flows)))
    for rows, name, flow in zip(groups, names, flows, strict=True):
        is_first = any(row.first_change for row in rows)
        mark = ">" if is_first else "*" if rows[0].changed else " "
        shown = f"{mark} {column(shorten_left(name, cells), cells)}  {_flow(flow, width - cells - 4)}"
        yield Text(shown, "bold" if is_first else "")


def module_groups(report: Report) -> list[list[ModuleRow]]:
    """The rows as people read them: modules that a program makes anew for each call are one, if all else is equal."""
    groups: dict[tuple[object, ...], list[ModuleRow]] = {}
    for number, row in enumerate(report.modules):
        is_made = row.module.endswith(f"<{row.type}>")
        key = (row.module, row.inputs, row.outputs, row.changed) if is_made else (number,)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def module_name(rows: list[ModuleRow]) -> str:
    """The name of such a row, with a count: how often it ran in a step, or how many modules it stands for."""
    name = one_line(rows[0].module or rows[0].type)
    if len(rows) > 1:
        return f"{name}, {len(rows)} of them"
    return f"{name} ×{rows[0].calls}" if rows[0].calls > 1 else name


def _sides(row: ModuleRow) -> tuple[str, str]:
    source, result = (one_line(", ".join(side)) or "nothing" for side in (row.inputs, row.outputs))
    return source, "the same" if source == result else result


def _flow(sides: tuple[str, str], cells: int) -> str:
    room = cells - 3
    left = min(cell_len(sides[0]), max(room // 2, room - cell_len(sides[1])))
    return f"{shorten(sides[0], left)} → {shorten(sides[1], room - left)}"


def copy_table(report: Report, width: int) -> Iterator[Text]:
    """List the copies of the whole recording, equal ones together, the largest first; a place is a line of its own."""
    groups: dict[tuple[object, ...], list[Copy]] = {}
    for copy in report.copies:
        groups.setdefault((_what(copy), _reason(copy), _layouts(copy)), []).append(copy)
    ordered = sorted(groups.values(), key=lambda group: -sum(copy.bytes_moved or 0 for copy in group))
    total = numbers.count(len(report.copies), "copy", "copies")
    yield from hang("", Text(f"{total} in the whole recording, equal ones in one row", "bold"), width)
    for group in ordered[:_MOST_COPIES]:
        yield from _copy(group, width)
    if len(ordered) > _MOST_COPIES:
        rest = sum(map(len, ordered[_MOST_COPIES:]))
        yield from hang(
            "",
            Text(f"… {numbers.count(rest, 'more copy', 'more copies')}: all of them in --format json"),
            width,
        )


def _copy(group: list[Copy], width: int) -> Iterator[Text]:
    first = group[0]
    durations = [copy.duration_ns for copy in group if copy.duration_ns is not None]
    moved, time = sum(copy.bytes_moved or 0 for copy in group), sum(durations)
    figures = numbers.byte_count(moved)
    if len(durations) == len(group) and time:
        figures += f", {numbers.duration(time)}, {numbers.figure(moved / time)} GB/s"
    yield from wrapped(f"{f'{len(group)}×':>6} ", Text(f"{_what(first)}: {figures}{_reason(first)}"), width)
    yield from wrapped(" " * 7, Text(_layouts(first), "dim"), width)


def _what(copy: Copy) -> str:
    cast, backward = " and cast" if copy.cast else "", ", backward" if copy.backward else ""
    return f"{copy.kind} {copy.change}{cast}{backward} in {one_line(copy.op)}"


def _reason(copy: Copy) -> str:
    """Why it is not counted."""
    return "" if copy.taxed else f"; not counted: {one_line(copy.reason or 'no layout fault')}"


def _layouts(copy: Copy) -> str:
    place = f"{one_line(copy.site.where)}, " if copy.site else ""
    strides = " → ".join("blocked" if side is None else _tuple(side) for side in (copy.source_strides, copy.strides))
    return place + ("sizes not recorded" if copy.sizes is None else f"sizes {_tuple(copy.sizes)}, strides {strides}")


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"
