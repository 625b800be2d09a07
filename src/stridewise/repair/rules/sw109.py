"""SW109 slow-strided-kernel: an operator takes its operand as it lies in memory, makes no copy, and is slower for it.

What it means
    The call was run again on random data: with the strides that it had, and with operands in another memory format.
    It was clearly faster with those. No copy tells of it: the time goes into a kernel that steps through memory instead
    of reading it in order. The loss is the time that such calls take beyond that, in a step.

Why it happens
    Kernels read contiguous memory with vector instructions; with a step of 2, or a reduction across the innermost
    dimension, they fall back to one element after the other, which may take ten times as long. A dense permuted operand
    is often as fast as a contiguous one, if all operands are permuted alike; beside one that is not, it is not.

How to fix it
    Make the tensor in that order where it is born. Where the finding says so, even a `.contiguous()` just before the
    call is faster: the copy and the call together take less time than the call alone.

When to ignore it
    When no order suits all calls that use the tensor, or the call is a small share of the step. The data is random and
    the call ran by itself, with its operands perhaps in a cache that the step does not leave them in: a trial of the
    edit, in the whole step, decides.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stridewise.analysis.functions import short_name
from stridewise.analysis.sites import place_of
from stridewise.findings import Cost, Finding, Payer, fingerprint
from stridewise.repair.plan.slow import Slow
from stridewise.repair.rules._words import duration, factor

CODE, TITLE = "SW109", "slow-strided-kernel"

FIRES = (
    """
x = torch.randn(16, 64, 32)
def program():
    x.transpose(1, 2).sum(0)
""",
    """
x = torch.randn(16, 32, 64)
def program():
    torch.nn.functional.gelu(x[..., ::2])
""",
    """
x = torch.randn(16, 32, 64)
def program():
    return x[..., ::2].amax(-1)
""",
    """
x = torch.randn(4, 8, 32, 32)
norm = torch.nn.BatchNorm2d(8).eval()
def program():
    with torch.no_grad():
        norm(x[:, :, 4:-4, 4:-4])
""",
)
QUIET = (
    """
x = torch.randn(16, 64, 32)
def program():
    x.sum(0)
    torch.nn.functional.gelu(x[:8])
""",
    # Views, and copies that the program asks for.
    """
x = torch.randn(16, 64, 32)
def program():
    x.transpose(1, 2).unsqueeze(0)[..., 1:]
    x.transpose(1, 2).contiguous()
    x.transpose(1, 2).reshape(16, -1)
""",
    # What works in place can't be given a copy.
    """
x = torch.randn(16, 64, 32)
def program():
    x.transpose(1, 2).add_(1)
    torch.exp(x[..., ::2], out=torch.empty(16, 64, 16))
""",
)


def findings(
    slow: Iterable[Slow], *, step_ns: float | None, min_share: float = 0.0, others: Iterable[Finding] = ()
) -> list[Finding]:
    """One finding for each place and function, costliest first.

    `others` are the findings of the recording: a call that copies, which one of them is charged with, is left to that.
    """
    copying = {(place_of(payer.site), short_name(payer.op)) for other in others for payer in other.payers}
    groups: dict[str, list[Slow]] = defaultdict(list)
    for entry in slow:
        groups[fingerprint_of(entry)].append(entry)
    slow_only = (
        group for group in groups.values() if (place_of(group[0].site), short_name(group[0].function)) not in copying
    )
    found = [_finding(group, sum(entry.loss_ns for entry in group), step_ns, min_share) for group in slow_only]
    return sorted(found, key=lambda finding: -(finding.cost.duration_ns or 0))


def fingerprint_of(slow: Slow) -> str:
    """The name of the finding that a slow call belongs to."""
    line = str(slow.site.line) if slow.site.expression is None else ""
    return fingerprint(CODE, slow.site, slow.site.via or "", line, slow.function)


def _finding(group: Sequence[Slow], loss_ns: float, step_ns: float | None, min_share: float) -> Finding:
    worst = max(group, key=lambda entry: entry.loss_ns)
    share = loss_ns / step_ns if step_ns else None
    cost = Cost(duration_ns=loss_ns, share=share)
    return Finding(
        code=CODE,
        title=TITLE,
        severity="warning" if share is not None and share >= min_share else "note",
        message=_message(worst),
        count=sum(entry.count for entry in group),
        site=worst.site,
        origin=None,
        carriers=(),
        payers=(Payer(worst.site, worst.function, _operands(worst), cost),),
        cost=cost,
        evidence=_evidence(worst),
        advice=_advice(worst),
        fingerprint=fingerprint_of(worst),
    )


def _message(slow: Slow) -> str:
    name = short_name(slow.function)
    both = " with its backward" if slow.backward else ""
    times = factor(slow.recorded_ns / slow.op_ns)
    return f"`{name}`{both} takes {times} as long on {_operands(slow)}, as on the same data in {slow.format} order."


def _operands(slow: Slow) -> str:
    return "; ".join(map(str, slow.operands[:3]))


def _advice(slow: Slow) -> str:
    method = ".contiguous()" if slow.format == "contiguous" else ".contiguous(memory_format=torch.channels_last)"
    if slow.pays_for_copy:
        gain = factor(slow.recorded_ns / slow.with_copy_ns)
        return f"Put `{method}` before the call: the copy and the call together are {gain} as fast."
    return f"Make it {slow.format} where it is born: with a copy of its own the call was not clearly faster."


def _evidence(slow: Slow) -> tuple[str, ...]:
    what = "call and its backward" if slow.backward else "call"
    return (
        f"{duration(slow.recorded_ns)} a {what} on random data with these strides",
        f"{duration(slow.op_ns)} with a {slow.format} operand",
        f"{duration(slow.with_copy_ns)} with the copy before it",
    )
