"""SW501 relayout-kernel: a generated kernel copies a tensor into another layout because a library call wants it so.

What it means
    The compiler fuses what it generates itself, whatever the strides: a load is an index. What it does not generate,
    such as convolutions, matrix products and attention, are calls of libraries, which take some layouts only, or are
    much faster in one. In front of such a call stands a kernel that does nothing but copy, in every step.

Why it happens
    A convolution whose input is contiguous (NCHW): inductor turns convolutions to channels_last, and copies images
    and weights. A matrix without a unit stride (`x[:, ::2]`), a tensor that was permuted so that no call of a library
    can take it. Eager mode often makes the same copy inside of the call, where no list of operators shows it.

How to fix it
    Keep the tensor in the layout that the call takes. For convolutions: `model.to(memory_format=torch.channels_last)`
    and the same for the input, once, outside of the step. For others: let the operator before write the layout, slice
    rows instead of columns, or keep a parameter in the order in which it is used.

When to ignore it
    If the copy is small beside the call that it is for. The table of arms tells what the layout optimization gains.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from stridewise.checks.rule import Problem, finding
from stridewise.checks.rules._amounts import size as byte_count
from stridewise.compiled.facts import Facts
from stridewise.findings import Cost, Finding, Severity, Site
from stridewise.results.compiled import Copied, Graph

SEVERITY: Severity = "warning"
WAY = "compile"
_MOST = 4
_LONGEST = 100
FIRES = (
    """
import torch

def op(a, b):
    return a @ b

def subject():
    return {"fn": op, "args": (torch.randn(64, 128)[:, ::2], torch.randn(64, 64)), "compare": False}
""",
)
QUIET = (
    """
import torch

def op(a, b):
    return a @ b

def subject():
    return {"fn": op, "args": (torch.randn(64, 128)[:, :64], torch.randn(64, 64)), "compare": False}
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    """A finding for each expression whose library call takes copies."""
    tried = {_line(trial.site) for trial in facts.result.trials if trial.copies[0] > trial.copies[1]}
    groups: dict[tuple[object, ...], list[tuple[Graph, Copied]]] = {}
    for graph in facts.result.graphs:
        for copy in graph.copied:
            asked_for = copy.cause == "source" and copy.site is not None and _line(copy.site) in tried
            if copy.feeds_extern and copy.change != "none" and not asked_for:
                key = copy.site and _place(copy.site), copy.feeds, graph.function, graph.phase == "backward"
                groups.setdefault(key, []).append((graph, copy))
    for rows in groups.values():
        yield _finding(rows)


def _line(site: Site) -> tuple[object, ...]:
    return site.file, site.line


def _place(site: Site) -> tuple[object, ...]:
    return site.file, site.line, site.column, site.expression, None if site.column is not None else site.module


def _finding(rows: list[tuple[Graph, Copied]]) -> Finding:
    graph, first = rows[0]
    moved = [copy.bytes_moved for _, copy in rows]
    total = None if any(each is None for each in moved) else sum(each or 0 for each in moved)
    library = (first.feeds or "").removeprefix("torch.ops.")
    sources = list(dict.fromkeys(copy.source for _, copy in rows))
    what = " and ".join(filter(None, (", ".join(sources[:-1]), sources[-1])))
    amount = f", {byte_count(total)} a call" if total is not None else ""
    message = f"Before `{library}` a generated kernel copies {what} into another layout{amount}."
    calls = dict.fromkeys(f"line {copy.line} of graph {graph.id}: `{_short(copy.code)}`" for graph, copy in rows)
    evidence = (*tuple(calls)[:2], *(_row(copy) for _, copy in rows[:_MOST]))
    problem = Problem(
        first.site or graph.function,
        message,
        _advice(library, rows),
        evidence,
        "note" if graph.phase == "backward" else None,
        len(rows),
        details=(library, graph.phase),
    )
    return replace(finding(__name__, problem), cost=Cost(copies=len(rows), bytes_moved=total))


def _short(code: str) -> str:
    return code if len(code) <= _LONGEST else f"{code[: _LONGEST - 1]}…"


def _row(copy: Copied) -> str:
    change = f" ({copy.change})" if copy.change else ""
    written = copy.written.strides if copy.written is not None else "others"
    return f"{copy.source}{change}: {copy.read} to strides {written}"


def _advice(library: str, rows: list[tuple[Graph, Copied]]) -> str:
    if "convolution" in library:
        return (
            "Keep the model and its input in channels_last, once and outside of the step:"
            " `model.to(memory_format=torch.channels_last)`, `x.to(memory_format=torch.channels_last)`."
        )
    if all(copy.change == "pack" for _, copy in rows):
        return "Give it a tensor with a unit stride: slice rows instead of columns, or copy once outside of the step."
    return "Let the operator before it write the layout that it takes, or keep the tensor so from the start."
