"""SW201 collective-of-view: a collective gets a tensor whose memory it can't move in one piece.

What it means
    A tensor with gaps, an expanded one, or one whose elements share memory is given to a collective that moves memory
    flat: as many elements as the tensor has, from consecutive memory that starts at its first one. gloo does so without
    an error. What is sent are the wrong elements, what is received lands on the neighbours of a view, and of an
    expanded tensor gloo reads and writes past the end of its memory, up to a crash. The same goes for lists in
    `scatter` and `reduce_scatter` whose strides differ from the output's.

Why it happens
    A column, a step, a slice of a batch or an `expand` is a view: its elements don't lie side by side. NCCL refuses
    such tensors, without telling which. Of gloo's collectives, the gathers and `all_to_all` copy; the others don't.

How to fix it
    Hand over a contiguous copy, and write the result back: `t = b[:, 0].contiguous()`, `dist.broadcast(t, 0)`,
    `b[:, 0] = t`. `guard_collectives(mode="convert")` does that for every call. A tensor whose elements share memory
    can't take a result: `clone()` it first.

When to ignore it
    Never: what comes out is not what was asked for.
"""

import ast
from typing import Literal

from msgspec import Struct

from stridewise import layout
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout

SEVERITY: Severity = "error"
WAY = "guard"

_START = """
import torch
import torch.distributed as dist
from stridewise import guard_collectives

def program():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with guard_collectives():
            run()
    finally:
        dist.destroy_process_group()
"""
FIRES = (
    _START
    + """
def run():
    table = torch.zeros(4, 3)
    dist.broadcast(table[:, 0], src=0)
""",
    _START
    + """
def run():
    scale = torch.ones(1).expand(8)
    dist.all_reduce(scale)
""",
    _START
    + """
def run():
    windows = torch.zeros(6).unfold(0, 3, 1)
    dist.all_gather([windows], torch.ones(4, 3))
""",
    _START
    + """
def run():
    image = torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last)
    dist.scatter(torch.empty(1, 3, 2, 2), [image], src=0)
""",
    _START
    + """
def run():
    dist.all_to_all_single(torch.empty(3, 4), torch.zeros(4, 3).t())
""",
)
QUIET = (
    _START
    + """
def run():
    table = torch.zeros(4, 3)
    first = table[:, 0].contiguous()
    dist.broadcast(first, src=0)
    table[:, 0] = first
    dist.all_reduce(table[1:])
""",
    _START
    + """
def run():
    image = torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    table = torch.zeros(4, 3)
    dist.all_gather([table[:, 0]], table[:, 1])
    dist.gather(table.t(), [torch.empty(3, 4)], dst=0)
""",
)


Treatment = Literal["flat", "row_major", "cloned", "packed", "contiguous"]
"""What happens to a tensor's memory.

`flat`: as many elements as it has are read or written, one behind the other from its first on; right if it is dense
and its strides are the same wherever the values come from or go to. `row_major`: written flat in the order of its
indices. `cloned`: copied to dense memory in its own order, and that is moved flat. `packed`: copied to contiguous
memory, and back: nothing can go wrong, unless elements of an output share memory. `contiguous`: refused unless it is
contiguous.
"""
Role = Literal["input", "output", "both"]


class Handed(Struct, frozen=True):
    """A tensor that a collective was given."""

    name: str
    """`input`, `output 2`."""
    layout: Layout
    role: Role
    treatment: Treatment
    source: str | None = None
    """The expression that it was given as."""

    @property
    def words(self) -> str:
        """Its expression, or what it is to the collective."""
        return f"`{self.source}`" if self.source else self.name


class Call(Struct, frozen=True):
    """One call of a collective on this rank."""

    op: str
    """The method that was called."""
    site: Site
    handed: tuple[Handed, ...]
    backend: str = "gloo"
    in_order: bool = False
    """Elements meet by their place in memory."""


def check(call: Call) -> Finding | None:
    """What is wrong with a call that can be seen on one rank."""
    for handed in call.handed:
        harm = _harm(handed, call.backend)
        if harm is not None:
            return _finding(call, handed, harm)
    first, other = _out_of_order(call)
    if first is None or other is None:
        return None
    moved = f"{call.backend} moves both flat, so values land at other indices"
    return _finding(call, other, f"{first.words} is {described(first.layout)}: {moved}")


def order(given: Layout, treatment: Treatment) -> tuple[int, ...] | None:
    """The strides in which elements are moved, without those of size-1 dimensions; None for the order of indices."""
    moved = layout.clone(given) if treatment == "cloned" else given
    if layout.is_contiguous(moved):
        return None
    return tuple(stride if size > 1 else 0 for size, stride in zip(moved.sizes, moved.strides, strict=True))


def moved(handed: Handed) -> Layout | None:
    """The layout in which a tensor's memory is moved as it lies; None if it is copied to contiguous memory before."""
    if handed.treatment == "packed":
        return None
    return layout.clone(handed.layout) if handed.treatment == "cloned" else handed.layout


def elsewhere(site: Site, rank: int, why: str) -> Finding:
    """A call that another rank can't make."""
    shown = f"`{' '.join((site.expression or 'A collective').split())}`"
    return finding(
        __name__,
        Problem(
            site,
            f"{shown} was stopped on rank {rank}, and so on all ranks. There: {why}",
            advice="Mend it on that rank.",
            evidence=(f"rank {rank}: {why}",),
            details=("elsewhere",),
        ),
    )


def can_hold_a_result(given: Layout) -> bool:
    """Whether each of its elements has memory of its own."""
    return not layout.is_overlapping(given)


def _harm(handed: Handed, backend: str) -> str | None:
    given, role = handed.layout, handed.role
    if handed.treatment == "contiguous":
        return None if layout.is_contiguous(given) else f"{backend} refuses it, without telling which tensor it is"
    if handed.treatment == "packed":
        if role != "output" or can_hold_a_result(given) or layout.is_expanded(given):
            return None  # torch itself refuses to write to an expanded tensor
        return "several of its elements share memory, and only the last value that is written there stays"
    if handed.treatment == "cloned" or layout.is_contiguous(given):
        return None
    if handed.treatment == "flat" and layout.is_non_overlapping_and_dense(given):
        return None
    if backend != "gloo":
        return f"{backend} moves memory flat, or refuses it without telling which tensor it is"
    count = layout.numel(given)
    what = {"input": "reads", "output": "writes", "both": "reads and writes"}[role]
    if not can_hold_a_result(given):
        past = count - layout.span(given)
        return f"gloo {what} {count} elements from its first on, {past} of them past its end"
    if layout.is_gapped(given):
        return f"gloo {what} {count} elements in a row from its first on, those between its own too"
    return f"gloo {what} its {count} elements in the order of memory, not of indices"


def _out_of_order(call: Call) -> tuple[Handed | None, Handed | None]:
    """An output and an input of one call that would be moved in unequal orders."""
    if not call.in_order or call.backend != "gloo":
        return None, None
    moved = [each for each in call.handed if each.treatment in ("flat", "cloned")]
    outputs = [each for each in moved if each.role == "output"]
    inputs = [each for each in moved if each.role == "input"]
    for output in outputs:
        for each in inputs:
            if order(each.layout, each.treatment) != order(output.layout, output.treatment):
                return output, each
    return None, None


def _finding(call: Call, handed: Handed, harm: str) -> Finding:
    shown = f"`{' '.join((call.site.expression or call.op).split())}`"
    return finding(
        __name__,
        Problem(
            call.site,
            f"{shown} gets {handed.words}, {described(handed.layout)}: {harm}.",
            advice=_advice(call, handed),
            evidence=tuple(f"{each.name}: {described(each.layout)}" for each in call.handed),
            details=(call.op, handed.name),
        ),
    )


def _advice(call: Call, handed: Handed) -> str:
    if handed.role != "input" and not can_hold_a_result(handed.layout):
        return "Give it memory of its own first, with `clone(memory_format=torch.contiguous_format)`."
    convert = 'or let `guard_collectives(mode="convert")` do it.'
    source = handed.source
    if source is None:
        back = "" if handed.role == "input" else ", and copy what it receives back with `copy_`"
        return f"Hand over `contiguous()` copies{back}; {convert}"
    copied = f"{source}.new_empty({source}.shape)" if handed.role == "output" else f"{source}.contiguous()"
    steps = [f"`t = {copied}`", f"`{_with(call.site.expression, source)}`"]
    if handed.role != "input":
        steps.append(f"`{source} = t`" if source.endswith("]") else f"`{source}.copy_(t)`")
    return f"{', '.join(steps)}; {convert}"


def _with(expression: str | None, source: str) -> str:
    """The call with `t` in the place of an argument."""

    class Other(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and ast.unparse(node) == source:
                return ast.Name("t")
            return self.generic_visit(node)

    return ast.unparse(Other().visit(ast.parse((expression or "").strip(), mode="eval")))
