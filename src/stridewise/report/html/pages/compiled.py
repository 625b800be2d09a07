"""The page of what torch.compile did."""

from collections.abc import Iterator

from stridewise.report.compiled_words import arm_ratio, sentence
from stridewise.report.content import Contents
from stridewise.report.html.cards import cards, meanings
from stridewise.report.html.model import Figure, Page, Table
from stridewise.results import numbers
from stridewise.results.compiled import Arm, Compiled, Graph, of_one_call

_MOST_ROWS = 200


def page(result: Compiled, contents: Contents) -> Page:
    """Findings, the ways to run the program, its graphs, and what lies otherwise than in eager mode."""
    wrong = any(finding.severity == "error" for finding in result.findings)
    return Page(
        command="stridewise: torch.compile",
        verdict=sentence(result),
        tone="wrong" if wrong else "fine" if result.ok else "look",
        figures=_figures(result),
        cards=cards(result.findings, period="a call", contents=contents),
        tables=tuple(table for table in _tables(result) if table.rows),
        notes=(*result.missing, *result.notes),
        measured=", ".join(f"{key} {value}" for key, value in result.environment.items()),
        meanings=meanings(result.findings),
    )


def _figures(result: Compiled) -> tuple[Figure, ...]:
    run = of_one_call(result.graphs)
    known = [graph.bytes_moved for graph in run if graph.bytes_moved is not None]
    return (
        Figure(str(len(result.graphs)), "graph" if len(result.graphs) == 1 else "graphs"),
        Figure(str(sum(graph.kernels for graph in run)), "generated kernels a call"),
        Figure(str(sum(graph.copies for graph in run)), "tensors only copied"),
        Figure(numbers.byte_count(sum(known)) if known else "not known", "moved by these"),
    )


def _tables(result: Compiled) -> Iterator[Table]:
    yield Table(
        "Ways to run it",
        ("", "time", "95 % interval", "kernels", "library calls", "copies", "peak memory"),
        tuple(_arm(arm, arm is result.arms[0]) for arm in result.arms),
        "Times are ratios to eager mode, taken in turn in one process: below 1 is faster.",
        numeric=(1, 2, 3, 4, 5, 6),
        leading=True,
    )
    yield Table(
        "Graphs",
        ("graph", "function", "kernels", "library calls", "copies", "copied"),
        tuple(map(_graph, result.graphs[:_MOST_ROWS])),
        numeric=(2, 3, 4, 5),
        code=(0, 1),
    )
    copied = [(graph, row) for graph in of_one_call(result.graphs) for row in graph.copied]
    yield Table(
        "Tensors that kernels only copy",
        ("kernel", "what", "from", "to", "for", "source"),
        tuple(
            (
                row.kernel,
                row.source,
                str(row.read or ""),
                str(row.written or ""),
                row.feeds or "",
                row.site.where if row.site and row.site.file else "",
            )
            for _, row in copied[:_MOST_ROWS]
        ),
        code=(0, 1, 2, 3, 4),
        folded=len(copied) > 12,
    )
    yield Table(
        "Results that lie otherwise than in eager mode",
        ("result", "eager", "compiled"),
        tuple((row.name, str(row.eager), str(row.compiled)) for row in result.outputs if not row.same),
        code=(0, 1, 2),
    )
    yield Table(
        "Graph breaks and recompilations",
        ("graph", "where", "why"),
        (
            *((each.id, each.site.where, each.reason) for each in result.breaks),
            *((each.id, each.function.where, each.reason) for each in result.recompiles),
        )[:_MOST_ROWS],
        code=(0, 1),
        folded=True,
    )


def _arm(arm: Arm, is_first: bool) -> tuple[str, ...]:
    known = arm.low is not None and arm.high is not None
    return (
        arm.name if not arm.failed else f"{arm.name}: {arm.failed}",
        "1" if is_first else arm_ratio(arm),
        f"{arm.low:.2f} to {arm.high:.2f}" if known else "",
        *("" if each is None else str(each) for each in (arm.kernels, arm.externs, arm.copies)),
        "" if arm.peak_bytes is None else numbers.byte_count(arm.peak_bytes),
    )


def _graph(graph: Graph) -> tuple[str, ...]:
    function = " ".join(filter(None, (graph.function.where, graph.function.function)))
    moved = numbers.byte_count(graph.bytes_moved) if graph.bytes_moved else ""
    figures = (str(graph.kernels), str(graph.externs), str(graph.copies), moved)
    return (f"{graph.id} {graph.phase}", function, *figures)
