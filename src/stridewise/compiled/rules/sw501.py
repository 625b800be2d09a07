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

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from stridewise.analysis.sites import common_site
from stridewise.checks.rule import Problem, finding
from stridewise.compiled.facts import Facts
from stridewise.compiled.rules.sw505 import pays
from stridewise.findings import Cost, Finding, Severity, Site
from stridewise.results.compiled import Copied, Graph, Strides
from stridewise.results.numbers import byte_count

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
    """A finding for each expression whose library call takes copies, and for results that are copied at the end."""
    told = {_line(trial.site) for trial in facts.result.trials if trial.without == "removed" and pays(trial)}
    groups: dict[tuple[object, ...], list[tuple[Graph, Copied]]] = {}
    for graph in facts.result.graphs:
        for copy in graph.copied:
            asked_for = copy.cause == "source" and copy.site is not None and _line(copy.site) in told
            if (copy.feeds_extern or (copy.feeds == "output" and copy.cause == "required")) and not asked_for:
                key = copy.site and _place(copy.site), copy.feeds, graph.function, graph.phase == "backward"
                groups.setdefault(key, []).append((graph, copy))
    for rows in groups.values():
        yield _finding(rows)


def _line(site: Site) -> tuple[object, ...]:
    return site.file, site.line


def _place(site: Site) -> tuple[object, ...]:
    return site.file, site.line, site.column, site.expression, None if site.file is not None else site.module


def _finding(rows: list[tuple[Graph, Copied]]) -> Finding:
    graph, first = rows[0]
    copies, moved = _of_one_call(rows)
    library = (first.feeds or "").removeprefix("torch.ops.")
    sources = list(dict.fromkeys(copy.source for _, copy in rows))
    shown = sources if len(sources) <= _MOST else [*sources[: _MOST - 1], f"{len(sources) - _MOST + 1} more tensors"]
    what = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    amount = f", {byte_count(moved)} a call" if moved is not None else ""
    message = (
        f"A generated kernel copies {what} into the strides that the result has in eager mode{amount}."
        if library == "output"
        else f"Before `{library}` a generated kernel copies {what} into another layout{amount}."
    )
    calls = dict.fromkeys(f"line {copy.line} of graph {graph.id}: `{_short(copy.code)}`" for graph, copy in rows)
    counted = Counter(_row(copy) for _, copy in rows)
    evidence = (
        *tuple(calls)[:2],
        *(f"{row}{f', {times} times' if times > 1 else ''}" for row, times in list(counted.items())[:_MOST]),
    )
    sites = [copy.site for _, copy in rows if copy.site is not None]
    site = common_site(sites) if sites else graph.function
    problem = Problem(
        site,
        message,
        _advice(library, [copy for _, copy in rows]),
        evidence,
        "note" if graph.phase == "backward" else None,
        copies,
        details=(library, graph.phase),
    )
    return replace(finding(__name__, problem), cost=Cost(copies=copies, bytes_moved=moved))


def _of_one_call(rows: list[tuple[Graph, Copied]]) -> tuple[int, int | None]:
    """Copies and bytes of one call, which runs one of the compilations of each frame: the largest counts."""
    by_compilation: dict[str, dict[str, list[Copied]]] = {}
    for graph, copy in rows:
        by_compilation.setdefault(graph.frame, {}).setdefault(graph.id, []).append(copy)
    largest = [max(found.values(), key=len) for found in by_compilation.values()]
    copies = [copy for found in largest for copy in found]
    if any(copy.bytes_moved is None for copy in copies):
        return len(copies), None
    return len(copies), sum(copy.bytes_moved or 0 for copy in copies)


def _short(code: str) -> str:
    return code if len(code) <= _LONGEST else f"{code[: _LONGEST - 1]}…"


def _row(copy: Copied) -> str:
    change = {None: "", "none": " (to the same layout)"}.get(copy.change, f" ({copy.change})")
    written = copy.written.strides if copy.written is not None else "others"
    read = str(copy.read) if copy.read is not None else "strides that are not known"
    return f"{copy.source}{change}: {read} to strides {written}"


def _advice(library: str, copies: list[Copied]) -> str:
    inputs = [copy.source.partition("`")[2].rstrip("`") for copy in copies if copy.source.startswith("input `")]
    if any(copy.written is not None and _is_channels_last(copy.written) for copy in copies):
        model = any(copy.source.startswith("parameter `") for copy in copies)
        edits = ["`model.to(memory_format=torch.channels_last)`"] if model else []
        edits += [f"`{name} = {name}.to(memory_format=torch.channels_last)`" for name in dict.fromkeys(inputs)]
        if not edits:
            return "Keep the model and its input in channels_last, so that what comes before gives this layout."
        return f"Keep it in channels_last from the start, once and outside of the step: {', '.join(edits)}."
    if library == "output":
        return "Nothing is to be done in the program, unless the result may as well lie as it is computed."
    if inputs and all(copy.change == "pack" for copy in copies):
        name = inputs[0]
        return f"Give `{name}` a unit stride: slice rows instead of columns, or call `{name}.contiguous()` once before."
    if inputs:
        return f"Bring `{inputs[0]}` into that layout once, outside of the step, or let what makes it write it so."
    return "The call takes this layout: let what comes before write it, if the step has no use for the other one."


def _is_channels_last(strides: Strides) -> bool:
    """Whether the second dimension of four or five is the innermost, and is no more than its size."""
    return len(strides.sizes) in (4, 5) and strides.strides[1] == 1 and strides.sizes[1] != 1
