"""SW205 overlapping-write: values are written to memory that several indices share.

What it means
    An operation in place, an item assignment or an `out=` writes to a tensor of which two indices or more address one
    element, as after `expand`, `broadcast_to`, `unfold` or `as_strided`, or to a part of such a tensor. What is written
    at one index shows at others, and where each index gets a value of its own, which one stays is left to chance.

Why it happens
    Such tensors are views that repeat memory instead of copying it. torch refuses some of these writes (`more than one
    element of the written-to tensor refers to a single memory location`), only warns of some, and says nothing of
    others: of those to overlapping windows it sees none, and for `x[0] = value` it sees only the part `x[0]`.

How to fix it
    Give the tensor memory of its own before it is written to, `x = x.expand(4, 3).clone()`, or write out of place:
    `x = x + 1`, `torch.where(mask, value, x)`.

When to ignore it
    When all indices that share an element get the same value, and everything that reads the memory should see it.
    Writing to the tensor that was expanded says so more clearly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise import layout
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEVERITY: Severity = "error"
WAY = "guard"

FIRES = (
    """
import torch
from stridewise import guard_writes

def program():
    windows = torch.arange(10.0).unfold(0, 4, 2)
    with guard_writes():
        windows.add_(1)
""",
    """
import torch
from stridewise import guard_writes

def program():
    row = torch.zeros(3)
    with guard_writes():
        rows = row.expand(4, 3)
        rows[0] = 7.0
""",
    """
import torch
from stridewise import guard_writes

def program():
    hankel = torch.zeros(9).as_strided((5, 5), (1, 1))
    with guard_writes():
        torch.mm(torch.ones(5, 2), torch.ones(2, 5), out=hankel)
""",
)
QUIET = (
    """
import torch
from stridewise import guard_writes

def program():
    with guard_writes():
        base = torch.arange(10.0)
        windows = base.unfold(0, 4, 2)
        scaled = windows * 2
        scaled[0] = 7.0
        base.add_(1)
        rows = torch.zeros(3).expand(4, 3).clone()
        rows[0] = 7.0
        column = torch.zeros(4, 1, 3).expand(4, 1, 3)
        column.add_(1)
""",
    """
import torch
from stridewise import guard_writes

def program():
    with guard_writes():
        table = torch.zeros(4, 3)
        table.t()[:, 1:] += 1
        table.index_put_((torch.tensor([0, 0]),), torch.ones(2, 3), accumulate=True)
        torch.zeros(0).expand(4, 0).add_(1)
""",
)

_MOST_COUNTED = 1 << 20


class Write(Struct, frozen=True):
    """One tensor that an operator is about to write to."""

    op: str
    """The operator, such as `aten::add_`."""
    site: Site
    """The call."""
    given: Layout
    """Of what is written."""
    part_of: Layout | None = None
    """Of the tensor with shared elements that it was taken from, if it is only a part of one."""
    origin: Site | None = None
    """Where elements came to be shared, if that was seen."""


def check(write: Write) -> Finding | None:
    """Whether an element is written that another index addresses too."""
    if layout.is_overlapping(write.given):
        return _finding(write, f"{described(write.given)}: {_shared(write.given)}")
    if write.part_of is None or not shares(write.part_of, write.given):
        return None
    whole = f"a part of a tensor that is {described(write.part_of)}"
    return _finding(write, f"{whole}: what is written shows at other indices of it too")


def shares(whole: Layout, part: Layout) -> bool:
    """Whether an element of a part is addressed by another index of the whole, too.

    `part` does not overlap, and was taken from `whole`, so each of its elements has an index there already. Of more
    than a million indices the answer is yes.
    """
    if part.is_empty:
        return False
    if layout.is_expanded(whole) or max(layout.numel(whole), layout.span(whole)) > _MOST_COUNTED:
        return True
    import numpy as np

    start = min(whole.offset, part.offset)
    counts = np.bincount(_addresses(whole, start))
    return bool((counts[_addresses(part, start)] > 1).any())


def _addresses(given: Layout, start: int) -> NDArray[np.intp]:
    import numpy as np

    found = np.full(1, given.offset - start, dtype=np.intp)
    for size, stride in zip(given.sizes, given.strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return found


def _shared(given: Layout) -> str:
    count, memory = layout.numel(given), layout.stored(given)
    if memory >= count:  # too large to count
        return "several of its indices address one element"
    return f"its {count} indices address {memory} element{'s' if memory > 1 else ''}"


def _finding(write: Write, what: str) -> Finding:
    expression = " ".join((write.site.expression or "").split())
    evidence = [f"{write.op} writes to {described(write.given)}, storage offset {write.given.offset}"]
    if write.part_of is not None:
        evidence.append(f"taken from {described(write.part_of)}, storage offset {write.part_of.offset}")
    if write.origin is not None and write.origin.file is not None:
        evidence.append(f"elements are shared since {write.origin.where}, `{_line(write.origin)}`")
    return finding(
        __name__,
        Problem(
            write.site,
            f"{f'`{expression}`' if expression else write.op} writes to {what}.",
            advice=f"{_first(write)}, or write out of place.",
            evidence=tuple(evidence),
            origin=write.origin,
            details=(write.op,),
        ),
    )


def _first(write: Write) -> str:
    made = write.origin
    if made is None or made.expression is None or made.via is not None:
        return "`clone()` the tensor before it is written to"
    return f"`{_line(made)}.clone()` gives each index an element of its own"


def _line(site: Site) -> str:
    return " ".join((site.expression or "?").split())
