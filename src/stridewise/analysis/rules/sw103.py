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

from stridewise import layout
from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.converted import is_of_own_result
from stridewise.analysis.functions import short_name
from stridewise.analysis.inside import stays_inside, words_inside
from stridewise.analysis.needs import lacking
from stridewise.analysis.origins import where_made
from stridewise.analysis.rule import Claim, Words, by_call, claim_of_payer
from stridewise.analysis.rules.sw110 import calls_with_hidden_copies, repeats_hidden_copy
from stridewise.analysis.savings import saving_at_origin
from stridewise.analysis.sites import place_of
from stridewise.layout import Layout

_MOST_NAMED = 3

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
    several = _of_different_origins(claims)
    copies = [position for claim in several for position in claim.copies]
    read = [position for position in copies if not case.copies[position].backward] or copies
    operands = list(dict.fromkeys(filter(None, map(case.operand, read))))
    what = "; ".join(operands[:_MOST_NAMED]) or "its operand"
    if is_of_own_result(case, first):
        return _words_of_result(case, first)
    compiled = case.copies[first].kind == "compiled"
    again = " Its backward copies it again." if any(case.copies[copy].backward for copy in claims[0].copies) else ""
    message = (
        f"A compiled region copies {what}."
        if compiled
        else f"`{short_name(function)}` copies {what}: it needs {lacking(function, _given(case, read))}.{again}"
    )
    return Words(message=message, advice=_advice(case, claims))


def _of_different_origins(claims: Sequence[Claim]) -> list[Claim]:
    """The first claim of each place that operands come from."""
    first: dict[tuple[object, ...], Claim] = {}
    for claim in claims:
        first.setdefault((*place_of(claim.origin), claim.origin.expression) if claim.origin else (), claim)
    return [*first.values()]


def _words_of_result(case: Case, position: int) -> Words:
    """What to say of a convolution whose kernel gives the result in another order than the call."""
    copy = case.copies[position]
    assert copy.sizes is not None
    assert copy.source_strides is not None
    assert copy.strides is not None
    given, wanted = (_order(Layout(copy.sizes, strides)) for strides in (copy.source_strides, copy.strides))
    network = "channels_last_3d" if len(copy.sizes) == 5 else "channels_last"
    return Words(
        message=f"`{short_name(case.function(copy.call))}` copies {case.operand(position)}: the kernel"
        f" that ran gives it {given}, and it is handed on {wanted}.",
        advice=f"Make the network and its input {network}: the result is handed on as it is then."
        if given == f"in {network}"
        else None,
    )


def _order(given: Layout) -> str:
    if layout.is_contiguous(given):
        return "in row-major order"
    name = layout.name(given)
    return f"in {name}" if name.startswith("channels_last") else f"with strides {given.strides}"


def _given(case: Case, copies: Sequence[int]) -> list[Layout]:
    """The layouts that the message shows, by copy: of the call's input, or of what is copied inside."""
    found = []
    for position in copies:
        copy, row = case.copies[position], case.operand_row(position)
        of_gradient = copy.backward and not copy.direct and not case.reads_input(position)
        if row is not None and not of_gradient:
            found.append(row.layout)
        elif copy.sizes is not None and copy.source_strides is not None:
            found.append(Layout(copy.sizes, copy.source_strides))
    return found


def _is_channels_last(case: Case, position: int) -> bool:
    """The operand is in the format that convolutions like: it is the operator that is at odds with the network."""
    return is_channels_last(case.operand_row(position))


def _is_row_major(case: Case, position: int) -> bool:
    """The operand is contiguous, and the operator wants its dimensions in another order."""
    row = case.operand_row(position)
    return row is not None and layout.is_contiguous(row.layout)


def _advice(case: Case, claims: Sequence[Claim]) -> str | None:
    claim = claims[0]
    if _is_channels_last(case, claim.copies[0]):
        return (
            "The operator does not take channels_last: use one that does, or keep this part of the network row-major."
        )
    stream = case.streams[claim.copies[0]]
    if stream is not None and stream.goal.channels_last and _is_row_major(case, claim.copies[0]):
        return "In channels_last it takes its operand as it is."
    if claim.origin is None and stream is None and (case.operand(claim.copies[0]) or "").startswith("input "):
        return "Make its operand in the order that the operator needs, or use a form of the operation that takes it."
    if claim.origin is None and _is_row_major(case, claim.copies[0]):
        return "Hand its operands over in the order of dimensions that it works in, or use a form that takes theirs."
    if claim.origin is None and (stream is None or stream.origin.kind == "inside"):
        return "The operator makes this copy of a tensor of its own: another form of the operation may not need it."
    if stream is not None and claim.origin is not None and claim.origin.file is None:
        return f"Hand {claim.origin.expression} over in the order that the operator needs."
    if stays_inside(case, claim.copies[0]):
        return words_inside(case, claim.copies[0])
    starts = [where_made(case, each.origin, each.copies[0]) for each in _of_different_origins(claims)]
    if len(starts) > 1:
        return _advice_for_several(list(dict.fromkeys(filter(None, starts))))
    start = starts[0]
    behind = f"behind `{start}`" if start else "where the operand is made"
    if any(case.copies[position].backward for position in claim.copies):
        saving = saving_at_origin(case, claims)
        if saving is None:
            return f"One `.contiguous()` {behind} replaces the copies in forward and in backward."
        if saving.is_one:
            return f"Copy once for forward and backward, with `.contiguous()` {behind}. {saving}."
    if stream is None:  # a trace does not tell who else uses the tensor
        made = f"what `{start}` makes is not" if start else "this one is not"
        return f"Give it an operand in order: {made}. A copy {'there' if start else behind} wins if more calls use it."
    if not start:
        return "Make the operand in the order that the operator needs; copying it earlier instead wins nothing."
    return f"Make `{start}` give the order that the operator needs; copying there instead of here wins nothing."


def _advice_for_several(starts: Sequence[str]) -> str:
    """What to do where calls of one expression copy operands of several origins."""
    named = [f"`{start}`" for start in starts[:_MOST_NAMED]]
    others = "the other places where its operands are made" if len(starts) > _MOST_NAMED else ""
    places = [*named, *filter(None, [others])]
    return (
        "Its operands are made in several places: make each give the order that the operator needs"
        f" ({', '.join(places)}); copying there instead of here wins nothing."
    )
