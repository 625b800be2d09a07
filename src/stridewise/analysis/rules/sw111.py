"""SW111 two-pass-cast: a tensor is cast and brought into order in two passes over memory where one would do.

What it means
    One call changes the dtype and keeps the strides, another copies the result (or the source) into order. Each reads
    and writes the whole tensor; a single copy can do both.

Why it happens
    `x.half().contiguous()`, a cast by autocast in front of an operator that then copies, or a copy that is made before
    the cast and so moves the wider elements.

How to fix it
    Do both at once: `x.to(torch.bfloat16, memory_format=torch.contiguous_format)`, or make the tensor contiguous
    after the cast when the cast narrows it, before it when the cast widens it.

When to ignore it
    When the two results are both used.
"""

from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import CASTS, short_name
from stridewise.analysis.rule import Claim, Words

FIRES = (
    """
x = torch.randn(64, 32)
def program():
    x.t().bfloat16().contiguous()
""",
    """
x = torch.randn(64, 32)
def program():
    x.t().contiguous().bfloat16()
""",
)
QUIET = (
    """
x = torch.randn(64, 32)
def program():
    x.t().contiguous()
""",
    """
x = torch.randn(64, 32)
def program():
    x.t().to(torch.bfloat16, memory_format=torch.contiguous_format)
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """Copies of what a cast has just made, and copies whose result is cast next."""
    for position in copies:
        copy, stream = case.copies[position], case.streams[position]
        if stream is None or stream.operand is None or not copy.direct or copy.cast:
            continue
        producer = case.flow.producers[copy.call][stream.operand]
        if producer >= 0 and _casts(case, producer):
            other = producer
        elif copy.kind in ("explicit", "implicit"):
            casts = [call for call in case.flow.consumers.get(copy.call, []) if _casts(case, call)]
            if len(case.flow.consumers.get(copy.call, [])) != 1 or not casts:
                continue
            other = casts[0]
        else:
            continue
        yield Claim(
            copies=(position,),
            site=case.site(copy.call),
            origin=case.site(other),
            inferred=copy.inferred,
            details=("cast first" if other == producer else "copy first",),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a cast and a copy."""
    function = short_name(case.payer_name(claims[0].copies[0]))
    cast = " ".join(((claims[0].origin.expression if claims[0].origin else None) or "").split())
    if claims[0].details[0] == "cast first":
        what = f"what `{cast}` casts" if cast else "what was cast just before"
    else:
        what = f"before `{cast}` casts" if cast else "before a cast"
    return Words(
        message=f"`{function}` copies {what}: two passes over the same elements.",
        advice="Cast and copy in one pass: `.to(dtype, memory_format=torch.contiguous_format)`.",
    )


def _casts(case: Case, call: int) -> bool:
    """Whether a call made the same elements in another dtype."""
    row = case.log.calls[call]
    if short_name(case.function(call)) not in CASTS or not row.inputs or not row.outputs:
        return False
    before, after = case.flow.row(row.inputs[0]), case.flow.row(row.outputs[0])
    return before is not None and after is not None and before.sizes == after.sizes and before.dtype != after.dtype
