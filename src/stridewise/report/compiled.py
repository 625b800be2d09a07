"""What torch.compile did, as text: a sentence, the findings, the graphs with their lines, and the ways to run it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Cost, Finding, Site
from stridewise.report import Format, html, json
from stridewise.report.block import STYLES, placed, titled
from stridewise.report.compiled_words import arm_ratio, sentence
from stridewise.report.console import write
from stridewise.report.exchange import Exchange, dumps
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import inert, one_line, shorten, shorten_left
from stridewise.results import numbers
from stridewise.results.compiled import Arm, Compiled, Graph, Launch, of_one_call

_LABEL = 8
_MOST_GRAPHS = 8
_MOST_LINES = 16
_MOST_ROWS = 12
_NAME, _PLACE = 44, 34
_EAGER_AND_COMPILED = 2


def render(
    result: Compiled,
    out: TextIO,
    *,
    format: Format = "text",
    code: bool = False,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it in one of the formats; as text at most 100 columns wide, but for the code that was generated.

    `code` shows that too; JSON has it always.
    """
    if format == "json":
        out.write(json.dumps(result))
    elif format == "html":
        html.render(result, out)
    elif format == "text":
        write(lambda columns: lines(result, columns, code=code), out, color=color, width=width)
    else:
        out.write(dumps(of_compiled(result), format))


def of_compiled(result: Compiled) -> Exchange:
    """What programs read of it; what was compared stands in the messages, for which they have no other place."""
    findings = tuple(
        replace(finding, message="\n".join((finding.message, *finding.evidence))) for finding in result.findings
    )
    return Exchange("stridewise run --compiled", findings, sentence(result), (*result.missing, *result.notes))


def lines(result: Compiled, width: int, *, code: bool = False) -> Iterator[Text]:
    """The whole text."""
    yield from hang("", quote(sentence(result), "bold green" if result.ok else "bold"), width)
    for finding in result.findings:
        yield from _apart(_finding(finding, width))
    for section in (_arms(result.arms, width), _graphs(result.graphs, width), _chosen(result, width)):
        yield from _apart(section)
    yield from _apart(_outputs(result, width))
    breaks = [(each.site, each.reason) for each in result.breaks if each.layout_call is None]
    yield from _apart(_others("Graph breaks", breaks, width))
    recompiles = [(each.function, each.reason) for each in result.recompiles if not each.about_strides]
    yield from _apart(_others("Recompilations", recompiles, width))
    if code:
        for name, text in result.code.items():
            yield from _apart(_code(name, text))
    for note in (*result.missing, *result.notes):
        yield from _apart(hang("note: ", quote(note), width, "bold cyan"))
    environment = ", ".join(f"{one_line(key)} {one_line(value)}" for key, value in result.environment.items())
    meaning = f"What a code means: stridewise rule {inert(result.findings[0].code)}" if result.findings else ""
    said = ". ".join(filter(None, (environment, meaning)))
    yield from _apart(hang("", Text(said, "dim"), width) if said else ())


def _apart(section: Iterable[Text]) -> Iterator[Text]:
    for number, line in enumerate(section):
        if not number:
            yield Text()
        yield line


def _finding(finding: Finding, width: int) -> Iterator[Text]:
    style = STYLES[finding.severity]
    yield from titled(finding, width, numbers.count(finding.count, "time") if finding.count > 1 else "")
    if finding.site.file is not None:
        yield from placed(finding.site, style, width)
    elif finding.site.expression or finding.site.module:
        module = f"module {one_line(finding.site.module)}" if finding.site.module else ""
        where = ", ".join(filter(None, (one_line(finding.site.expression or ""), module)))
        yield from hang("  --> ", quote(where), width, "blue")
    if finding.cost not in (Cost(), Cost(copies=None, bytes_moved=None)):
        yield from hang("  cost".ljust(_LABEL), Text(f"{numbers.cost(finding.cost)} a call"), width, "bold")
    for evidence in finding.evidence:
        yield from hang("  why".ljust(_LABEL), quote(evidence), width, "bold")
    if finding.advice:
        yield from hang("  fix".ljust(_LABEL), quote(finding.advice, "green"), width, "bold")


# ------------------------------------------------------------------------------------------------------------ tables


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: int) -> Iterator[Text]:
    """Rows under their heads; the columns from `right` on are figures, and stand to the right."""
    cells = [max(map(cell_len, texts)) for texts in zip(heads, *rows, strict=True)]
    for number, texts in enumerate((heads, *rows)):
        parts = [
            column(text, room) if at < right else " " * (room - cell_len(text)) + text
            for at, (text, room) in enumerate(zip(texts, cells, strict=True))
        ]
        yield Text(shorten(f"  {'  '.join(parts)}".rstrip(), width), "bold" if not number else "")


def _arms(arms: Sequence[Arm], width: int) -> Iterator[Text]:
    if not arms:
        return
    yield from hang("", Text("Ways to run it", "bold"), width)
    heads = ("", "time", "95 % interval", "kernels", "library calls", "copies", "peak memory")
    rows = [
        (
            arm.name,
            "1" if arm is arms[0] else arm_ratio(arm),
            f"{arm.low:.2f} to {arm.high:.2f}" if arm.low is not None and arm.high is not None else "",
            *("" if each is None else str(each) for each in (arm.kernels, arm.externs, arm.copies)),
            "" if arm.peak_bytes is None else numbers.byte_count(arm.peak_bytes),
        )
        for arm in arms
    ]
    yield from _table(heads, rows, width, 1)
    for arm in arms:
        if arm.failed:
            yield from hang(f"  {arm.name}: ", quote(one_line(arm.failed)), width)
    gloss = "Times are ratios to eager mode, taken in turn in this process: below 1 is faster."
    if any(arm.is_untimed for arm in arms[1:]):
        gloss += " Where there is none the time was over: give a longer time_limit."
    if len(arms) > _EAGER_AND_COMPILED:
        gloss += (
            " The layout optimization is torch._inductor.config.layout_optimization, and force_layout_optimization."
        )
    yield from hang("  ", Text(gloss, "dim"), width)


def _graphs(graphs: Sequence[Graph], width: int) -> Iterator[Text]:
    if not graphs:
        return
    yield from hang("", Text("Graphs", "bold"), width)
    for graph in graphs[:_MOST_GRAPHS]:
        language = f" in {graph.language}" if graph.language else ""
        figures = [
            f"{numbers.count(graph.kernels, 'kernel')}{language}",
            numbers.count(graph.externs, "library call"),
            numbers.count(graph.copies, "copy", "copies"),
        ]
        if graph.copies and graph.bytes_moved is not None:
            figures.append(numbers.byte_count(graph.bytes_moved))
        where = shorten_left(one_line(graph.function.where), _PLACE)
        function = f" {one_line(graph.function.function)}" if graph.function.function else ""
        head = f"{one_line(graph.id)} {graph.phase}, {where}{function}: {', '.join(figures)}"
        yield from hang("  ", Text(head), width)
        yield from _launches(graph, width)
    if len(graphs) > _MOST_GRAPHS:
        more = numbers.count(len(graphs) - _MOST_GRAPHS, "more graph")
        yield Text(f"  … {more}: all of them in --format json")


def _launches(graph: Graph, width: int) -> Iterator[Text]:
    """The lines that copy, and those that take the copies; of a graph without copies the first ones."""
    taken = {copy.feeds for copy in graph.copied}
    telling = [launch for launch in graph.launches if launch.copies or launch.name in taken]
    shown = telling if telling and len(graph.launches) > _MOST_LINES else list(graph.launches)
    for launch in shown[:_MOST_LINES]:
        name = shorten(one_line(launch.name).removeprefix("torch.ops."), _NAME)
        kind = "library" if launch.kind == "extern" else "kernel "
        line = Text(f"  {launch.line:>6}  {kind}  ")
        line.append(column(name, _NAME), "yellow" if launch.copies else "")
        said = "  ".join(filter(None, (_copies(launch), _from(launch.sites))))
        line.append(f"  {said}")
        line.truncate(width, overflow="ellipsis")
        line.rstrip()
        yield line
    rest = len(graph.launches) - min(len(shown), _MOST_LINES)
    if rest:
        yield Text(f"          … {numbers.count(rest, 'more line')}: in --format json")


def _copies(launch: Launch) -> str:
    if not launch.copies:
        return ""
    return f"copies {launch.copies}{' only' if launch.only_copies else ''}"


def _from(sites: Sequence[Site]) -> str:
    lines = dict.fromkeys(f"{site.line}: {one_line(site.expression or '')}" for site in sites if site.file)
    return "; ".join(lines)


def _chosen(result: Compiled, width: int) -> Iterator[Text]:
    found = (row for graph in of_one_call(result.graphs) for row in graph.chosen)
    rows = list({(row.extern, row.operand, row.eager, row.compiled): row for row in found}.values())
    if not rows:
        return
    yield from hang("", Text("Strides that library calls are given, where eager mode has others", "bold"), width)
    for row in rows[:_MOST_ROWS]:
        name = one_line(row.extern).removeprefix("torch.ops.")
        strides = f"{row.eager.strides} in eager mode, {row.compiled.strides} compiled"
        text = f"{name} {row.operand}: {strides}; {one_line(row.why)}"
        yield from hang("  ", quote(text), width)
    if len(rows) > _MOST_ROWS:
        yield Text(f"  … {numbers.count(len(rows) - _MOST_ROWS, 'more')}: all of them in --format json")


def _outputs(result: Compiled, width: int) -> Iterator[Text]:
    differing = [output for output in result.outputs if not output.same]
    if not differing:
        return
    yield from hang("", Text("Results that lie otherwise than in eager mode", "bold"), width)
    for output in differing[:_MOST_ROWS]:
        text = f"{one_line(output.name)}: eager {output.eager}, compiled {output.compiled.strides}"
        yield from hang("  ", quote(text), width)


def _others(what: str, rows: Sequence[tuple[Site, str]], width: int) -> Iterator[Text]:
    """What has nothing to do with layout."""
    if rows:
        yield from hang("", Text(f"{what} that have nothing to do with layout", "bold"), width)
    for site, reason in rows[:_MOST_ROWS]:
        yield from hang("  ", quote(f"{one_line(site.where)}: {one_line(reason)}"), width)


def _code(name: str, text: str) -> Iterator[Text]:
    yield Text(f"Code of {one_line(name)}", "bold")
    for number, line in enumerate(text.splitlines(), 1):
        yield Text(f"{number:>6}  {inert(line.expandtabs(4))}".rstrip(), "dim")
