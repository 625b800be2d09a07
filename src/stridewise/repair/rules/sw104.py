"""SW104 needless-copy: the program asks for a copy, and is faster without it, with the same results.

What it means
    A `.contiguous()`, or another copy into memory order that stands in the source, was taken out in a trial. What
    follows gave the same results, and the step took less time. Only a trial can tell: a recording shows what the copy
    costs, and not what the calls behind it would cost without it.

Why it happens
    The copy was put there because a kernel was said to need it, or because an older one did. Elementwise operations,
    most reductions and the operands of matrix products take any strides that are dense; a `view` that needs the copy
    can often be a `reshape`, which copies only where it must.

How to fix it
    Take it out, as the edit does. If the tensor's layout leaves the model, the trial says so: whoever gets it sees
    other strides.

When to ignore it
    When the copy keeps a small tensor from holding a large storage alive, or other machines, shapes or devices need it.
    A trial speaks for the inputs and the machine that it ran on.
"""

from stridewise.findings import Cost, Finding, fingerprint
from stridewise.repair.rules._words import duration
from stridewise.results.repair import Trial

CODE, TITLE = "SW104", "needless-copy"

FIRES = (
    """
x, w = torch.randn(8, 64, 32), torch.randn(8, 64, 16)
def program():
    return torch.bmm(x.transpose(1, 2).contiguous(), w)
""",
)
QUIET = (
    # It is written to: without the copy that would be `x`.
    """
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2).contiguous()
    y.add_(1)
    return y
""",
    """
x = torch.randn(8, 64, 32)
def program():
    return x.contiguous() * 2
""",
)


def finding(trial: Trial, *, step_ns: float | None, min_share: float = 0.0) -> Finding:
    """What a trial that took a copy out and won says of that copy."""
    share = None if trial.ratio is None else max(0.0, 1 - trial.ratio)
    before, after = trial.tax_before, trial.tax_after
    moved = None
    if before is not None and after is not None and before.bytes_moved is not None and after.bytes_moved is not None:
        moved = max(0.0, before.bytes_moved - after.bytes_moved)
    copies = max(0.0, (trial.copies_before or 0) - (trial.copies_after or 0))
    saved_ns = None if share is None or step_ns is None else share * step_ns
    return Finding(
        code=CODE,
        title=TITLE,
        severity="warning" if share is not None and share >= min_share else "note",
        message=f"{_expression(trial)} copies, and nothing behind it needs the copy: {_results(trial)}.",
        count=1,
        site=trial.site,
        origin=None,
        carriers=(),
        payers=(),
        cost=Cost(copies=copies, bytes_moved=moved, duration_ns=saved_ns, share=share),
        evidence=_evidence(trial, saved_ns),
        advice="Take it out.",
        edits=trial.edits,
        fingerprint=fingerprint(CODE, trial.site, trial.what),
    )


def _expression(trial: Trial) -> str:
    text = " ".join((trial.site.expression or "").split())
    return f"`{text}`" if text else "A call"


def _results(trial: Trial) -> str:
    how = "with the same results" if trial.difference == 0 else "with results that agree within the tolerance"
    return f"the step is faster without it, {how}"


def _evidence(trial: Trial, saved_ns: float | None) -> tuple[str, ...]:
    if trial.ratio is None or trial.low is None or trial.high is None:
        return ()
    times = f"a step took {trial.ratio:.3f} of its time without it ({trial.low:.3f} to {trial.high:.3f})"
    saved = () if saved_ns is None else (f"{duration(saved_ns)} a step less",)
    return (f"{times}, in {trial.pairs} pairs", *saved)
