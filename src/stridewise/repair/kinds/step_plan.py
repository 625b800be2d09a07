"""step-plan: put tensors in order at the places where, by measured costs, that makes the whole step cheapest.

What it does
    Every call with strided operands was run again on data of its own, on such operands and on contiguous ones, and so
    was a copy of each of those operands. From these times it chooses behind which expressions a `.contiguous()` makes
    the step as cheap as it gets: it is one edit of all those places. What it is to gain is forecast, and the trial
    says how good that forecast was.

When it is right
    When several places only pay together, or a copy pays later in a stream than where that starts. It is proposed only
    if it is forecast to save at least a hundredth of the step. It knows contiguous tensors, and not channels_last.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from stridewise.analysis.functions import EXPLICIT, short_name
from stridewise.findings import Edit
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.plan.costs import Plan
from stridewise.repair.plan.step import Output, plan
from stridewise.repair.reading.places import copy_behind
from stridewise.repair.reading.streams import Point

ANSWERS = (
    'Strided tensors in several places: "put `.contiguous()` behind each `transpose` and `permute`". '
    "Where a copy pays depends on what all calls behind it cost with and without it: that was measured, and the copies "
    "are put where the sum is least, which may be nowhere."
)
EXAMPLES = (
    # Two calls gain, and the copy is smaller behind the slice.
    (
        """
import torch
x = torch.randn(32, 64, 128)
def program():
    y = x.transpose(1, 2) * 2
    z = y[:8]
    return torch.softmax(z, 1), torch.cumsum(z, 0), torch.exp(z)
""",
        """
import torch
x = torch.randn(32, 64, 128)
def program():
    y = x.transpose(1, 2) * 2
    z = y[:8].contiguous()
    return torch.softmax(z, 1), torch.cumsum(z, 0), torch.exp(z)
""",
    ),
    # Two streams, neither of which pays half.
    (
        """
import torch
x, y = torch.randn(8, 64, 32), torch.randn(8, 64, 32)
def program():
    a = x.transpose(1, 2)
    b = y.transpose(1, 2)
    return a + b, a * b, a - b, torch.maximum(a, b)
""",
        """
import torch
x, y = torch.randn(8, 64, 32), torch.randn(8, 64, 32)
def program():
    a = x.transpose(1, 2).contiguous()
    b = y.transpose(1, 2).contiguous()
    return a + b, a * b, a - b, torch.maximum(a, b)
""",
    ),
    (
        """
import torch
x = torch.randn(2, 16, 192)
def program():
    q, k, v = x.chunk(3, -1)
    return q, torch.softmax(k, 0), torch.softmax(k, 1), k.exp(), v
""",
        """
import torch
x = torch.randn(2, 16, 192)
def program():
    q, k, v = x.chunk(3, -1)
    k = k.contiguous()
    return q, torch.softmax(k, 0), torch.softmax(k, 1), k.exp(), v
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.transpose(1, 2).sum(0)
""",
    # What is written to is the view's memory.
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    y += 1
    return y.exp(), y.sin()
""",
    # What is behind would be out of order for it.
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    return y.exp().transpose(1, 2), y.sin().transpose(1, 2)
""",
    """
import torch
x = torch.randn(8, 32, 64)
def program():
    return x.sum(0), x.exp()
""",
)

LEAST = 0.01
"""Share of the step that has to be saved."""


def candidates(context: Context) -> Iterator[Candidate]:
    """The plan, if it is worth anything."""
    step_ns = context.report.totals.step_ns
    calls = [call for call in range(len(context.case.log.calls)) if context.step_of(call) == 0]
    if not context.costs.calls or not step_ns:
        return
    found = plan(context.case, calls, context.costs, lambda output: bool(_edits(context, [output])))
    if found is None or found.saving_ns < LEAST * step_ns:
        return
    edits = _edits(context, [(conversion.call, conversion.output) for conversion in found.conversions])
    count = len(edits)
    site = found.conversions[0].site
    where = f"behind `{_short(site.expression or '')}`" if count == 1 else f"in {count} places"
    if edits:
        yield Candidate(
            kind="step-plan",
            what=f"copy {where}, where the step is cheapest by measured costs",
            site=site,
            findings=_findings(context, found),
            edits=edits,
            removes_copies=False,
            plan=found,
        )


def _edits(context: Context, conversions: Iterable[Output]) -> tuple[Edit, ...]:
    """Copies behind outputs of calls, in the order of the source; none unless all of them can be made."""
    outputs: dict[int, list[int]] = defaultdict(list)
    for call, output in conversions:
        outputs[call].append(output)
    made = [_edit(context, call, sorted(those)) for call, those in outputs.items()]
    edits = {edit for edit in made if edit is not None}
    return () if None in made else tuple(sorted(edits, key=lambda edit: (edit.file, edit.span)))


def _edit(context: Context, call: int, outputs: list[int]) -> Edit | None:
    case = context.case
    refs = tuple(case.log.calls[call].outputs[output] for output in outputs)
    if short_name(case.function(call)) in EXPLICIT or any(context.is_written_after(call, ref) for ref in refs):
        return None
    return copy_behind(context, Point(call, tuple(outputs), refs, (), ()), ".contiguous()")


def _findings(context: Context, found: Plan) -> tuple[str, ...]:
    """Those whose copies are made by calls that get their operands in order."""
    mended = set(found.mended)
    rows = (
        context.report.copies[position].finding
        for position, copy in enumerate(context.case.copies)
        if copy.call in mended
    )
    return tuple(dict.fromkeys(finding for finding in rows if finding is not None))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"
