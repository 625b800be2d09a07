"""SW103 hidden-copy: an operator copies its operand before it can work on it.

What it means
    The call does not ask for a copy, and makes one: the operator needs its operand in another memory order, or without
    gaps, and copies it each time it is called.

Why it happens
    The operand is a view (transposed, sliced, permuted), or one operand's memory format decides for the others. Many
    operators take any strides and silently pay for them; which do is measured, not documented.

How to fix it
    Produce the operand in the order that the operator needs, or choose the form of the operation that takes it as it
    is. Putting `.contiguous()` in front only moves the copy to where it can be seen; it wins when the tensor is used
    more than once.

When to ignore it
    When the copy is a small share of the step: a copy that the operator makes once is not slower than one that you
    make.
"""

from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import need, short_name
from stridewise.analysis.rule import Claim, Words, by_call, claim_of_payer
from stridewise.analysis.rules.sw110 import calls_with_hidden_copies, repeats_hidden_copy
from stridewise.analysis.savings import saving_at_origin

FIRES = (
    """
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x.permute(0, 2, 1))
""",
    """
q, k = torch.randn(2, 2, 16, 4, 8).transpose(2, 3)
def program():
    q @ k.transpose(-1, -2)
""",
)
QUIET = (
    """
x = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x)
""",
    """
x = torch.randn(8, 64, 32)
def program():
    x.permute(0, 2, 1).contiguous()
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """What is left of copies inside operators, by call."""
    hidden = calls_with_hidden_copies(case, copies)
    inside = [
        position
        for position in copies
        if case.copies[position].kind in ("hidden", "compiled") or repeats_hidden_copy(case, position, hidden)
    ]
    for group in by_call(case, inside):
        group.sort(key=lambda position: case.copies[position].backward)
        yield claim_of_payer(case, group, with_origin=not _is_channels_last(case, group[0]))


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of an operator that copies."""
    first = claims[0].copies[0]
    function = case.payer_name(first)
    forward = [position for position in claims[0].copies if not case.copies[position].backward]
    operands = list(dict.fromkeys(filter(None, map(case.operand, forward or claims[0].copies))))
    what = "; ".join(operands[:3]) or "its operand"
    compiled = case.copies[first].kind == "compiled"
    again = " Its backward copies it again." if any(case.copies[copy].backward for copy in claims[0].copies) else ""
    message = (
        f"A compiled region copies {what}."
        if compiled
        else f"`{short_name(function)}` copies {what}: it needs {need(function)}.{again}"
    )
    return Words(message=message, advice=_advice(case, claims))


def _is_channels_last(case: Case, position: int) -> bool:
    """The operand is in the format that convolutions like: it is the operator that is at odds with the network."""
    return is_channels_last(case.operand_row(position))


def _advice(case: Case, claims: Sequence[Claim]) -> str | None:
    claim = claims[0]
    if _is_channels_last(case, claim.copies[0]):
        return (
            "The operator does not take channels_last: use one that does, or keep this part of the network row-major."
        )
    stream = case.streams[claim.copies[0]]
    if claim.origin is None and (stream is None or stream.origin.kind == "inside"):
        return "The operator makes this copy of a tensor of its own: another form of the operation may not need it."
    if stream is not None and claim.origin is not None and claim.origin.file is None:
        return f"Hand {claim.origin.expression} over in the order that the operator needs."
    start = " ".join(((claim.origin.expression if claim.origin else None) or "what makes the operand").split())
    if any(case.copies[position].backward for position in claim.copies):
        saving = saving_at_origin(case, claims)
        if saving is None:
            return f"One `.contiguous()` behind `{start}` replaces the copies in forward and in backward."
        if saving.is_one:
            return f"Copy once for forward and backward, with `.contiguous()` behind `{start}`. {saving}."
    if stream is None:  # a trace does not tell who else uses the tensor
        return f"Give it an operand in order: what `{start}` makes is not. A copy there wins if more calls use it."
    return f"Make `{start}` give the order that the operator needs; copying there instead of here wins nothing."
