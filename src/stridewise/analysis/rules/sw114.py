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
    write the other order. Where it takes images out of channels_last, the convolutions and poolings behind it run on
    row-major images, which may cost far more than the copy: `stridewise fix` times the step without it.

When to ignore it
    When what uses the copy would have copied by itself. Where that is known, as of a layer norm, the finding says so
    and is a note.
"""

from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import CONVOLUTIONS, IMPLICIT, REORDERS, need, short_name
from stridewise.analysis.needs import needed_by
from stridewise.analysis.rule import Claim, Words, by_call, claim_of_payer
from stridewise.recording.model import LayoutRow

_FAR = 64
"""How many calls behind a copy are looked at."""

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
    takers = _takers_of_channels_last(case, first)
    if takers:
        return Words(
            message=f"`{function}` copies {operand} out of channels_last{times}.",
            advice=f"{_listed(takers)} behind it would work in channels_last without it, and may be faster or"
            " slower so: `stridewise fix` tries the step without this copy.",
            only_a_note=users > 1,
        )
    if users > 1:
        advice = f"Keep it if the {users} calls that use it would each copy otherwise."
        return Words(message=f"{message}.", advice=advice, only_a_note=True)
    return Words(
        message=f"{message}.",
        advice="Leave it out where what follows takes any strides; `stridewise explain` says what this layout is.",
    )


def _takers_of_channels_last(case: Case, copy: int) -> list[str]:
    """What a copy takes a channels_last tensor away from: the operators behind it that take the format as it is.

    Looked for behind whatever keeps images images, such as elementwise operators.
    """
    call = case.copies[copy].call
    if call < 0 or not is_channels_last(case.operand_row(copy)) or any(map(is_channels_last, _made(case, call))):
        return []
    found: dict[str, None] = {}
    front, seen = [call], {call}
    while front and len(seen) < _FAR:
        for user in case.flow.consumers.get(front.pop(0), ()):
            if user in seen:
                continue
            seen.add(user)
            name = short_name(case.function(user))
            if name in CONVOLUTIONS or "channels_last" in need(name):
                found[name] = None
            elif any(len(row.sizes) in (4, 5) for row in _made(case, user)) and name not in REORDERS | IMPLICIT:
                front.append(user)
    return list(found)


def _made(case: Case, call: int) -> list[LayoutRow]:
    return [row for ref in case.log.calls[call].outputs if (row := case.flow.row(ref)) is not None]


def _listed(names: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in names[:3]]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
