"""SW114 requested-copy: the program itself asks for a copy into another order, or a reshape had to make one.

What it means
    `contiguous()`, `clone()`, a cast, an assignment, or a `reshape` or `flatten` that could not be a view, copied a
    tensor into another memory order. It is there in the source; what it costs is not.

Why it happens
    Attention brings heads back together (`transpose(1, 2).reshape(…)`), a loader hands over HWC images, a kernel is
    said to want contiguous input.

How to fix it
    Often it is needed: one reorder per attention block is the price of its algorithm. It is not needed where the
    consumer takes strides (elementwise operations, transposed operands of `mm` and `bmm`), or where the producer could
    write the other order.

When to ignore it
    When what uses the copy would have copied by itself. Where that is known, as of a layer norm, the finding says so
    and is a note.
"""

from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import IMPLICIT, short_name
from stridewise.analysis.needs import needed_by
from stridewise.analysis.rule import Claim, Words, by_call, claim_of_payer

FIRES = (
    """
x = torch.randn(64, 32)
def program():
    x.t().contiguous()
""",
    """
x = torch.randn(8, 64, 32)
def program():
    x.transpose(1, 2).reshape(8, -1)
""",
)
QUIET = (
    """
x = torch.randn(64, 32)
def program():
    x.contiguous()
    x.reshape(32, 64)
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The copies that nothing else explains: those that the source asks for, by call."""
    for group in by_call(case, copies):
        yield claim_of_payer(case, group)


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a copy that was asked for."""
    first = claims[0].copies[0]
    function = short_name(case.payer_name(first))
    if function in IMPLICIT and is_channels_last(case.operand_row(first)):
        return Words(
            message=f"`{function}` can't be a view of {case.operand(first) or 'its operand'}, so it copies.",
            advice="At the end of a channels_last network this is one small copy: pool to 1x1 before it, or keep it.",
        )
    operand = case.operand(first) or "its operand"
    if function in IMPLICIT:
        return Words(
            message=f"`{function}` can't be a view of {operand}, so it copies.",
            advice="Reshape before the dimensions are swapped where that means the same, or keep this one copy.",
        )
    if case.copies[first].backward:
        return Words(message=f"`{function}` brings a gradient into order, as the program asks.", only_a_note=True)
    users = max(len(set(case.flow.consumers.get(case.copies[claim.copies[0]].call, []))) for claim in claims)
    needs = [needed_by(case, claim.copies[0]) for claim in claims]
    times = f", once for the {users} calls that use it" if users > 1 else ""
    message = f"`{function}` copies {operand} into another memory order{times}"
    if needs[0] is not None and None not in needs:
        name, need = needs[0]
        return Words(
            message=f"{message}: `{name}` behind it needs {need}, so this copy stands for one of its own.",
            only_a_note=True,
        )
    if users > 1:
        return Words(message=f"{message}.", advice="Keep it if they would each copy otherwise.", only_a_note=True)
    return Words(
        message=f"{message}.",
        advice="Leave it out where what follows takes any strides; `stridewise explain` says what this layout is.",
    )
