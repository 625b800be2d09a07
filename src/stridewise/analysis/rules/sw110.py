"""SW110 gradient-copy: the backward of a call copies a gradient.

What it means
    In backward, the kernel that computes the gradients of this call had to copy a gradient into another order. The
    finding stands at the forward expression. Its origin is the call whose backward handed a gradient on in another
    order than the one that it was given, as the profiler recorded them.

Why it happens
    The backward of a view that swaps dimensions swaps them back: forward may use the view as it is, and its gradient
    arrives out of order all the same. Convolutions, matrix products and normalizations hand a gradient back in the
    order of their own operands. Weight gradients are computed in one order and kept in another.

How to fix it
    `.contiguous()` in forward changes nothing behind a view: the gradient of a copy has the order of what follows it,
    and the view swaps that. What helps is to split a tensor before its parts' dimensions are swapped
    (`part.transpose(1, 2) for part in qkv.unbind(2)`), to keep a convolutional network in channels_last, or to do
    without the swap. Where several calls copy one stream's gradient, a hook copies it once:
    `x.register_hook(lambda gradient: gradient.contiguous())`. For weight gradients, keep input and weight in one
    memory format.

When to ignore it
    When one call pays for a swap of dimensions that the program needs: the gradient has to be brought into order once.
    When the copy belongs to a weight gradient and is small beside the gradient's computation.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise import layout
from stridewise.analysis.arriving import words_of_arriving
from stridewise.analysis.case import Case
from stridewise.analysis.converted import is_row_major_convolution
from stridewise.analysis.copies import TracedCopy
from stridewise.analysis.functions import EXPLICIT, short_name
from stridewise.analysis.lineage import is_weight_gradient
from stridewise.analysis.rule import Claim, Words

FIRES = (
    """
norm = torch.nn.LayerNorm(32)
x, weight = torch.randn(8, 64, 32), torch.randn(8, 32, 64)
def program():
    (norm(x).transpose(1, 2) * weight).sum().backward()
""",
)
QUIET = (
    """
layer = torch.nn.Linear(8, 8)
x = torch.randn(4, 8)
def program():
    layer(x).pow(2).sum().backward()
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """What is left of the copies in backward, by forward call."""
    groups: dict[tuple[int | None, int, str, bool], list[int]] = defaultdict(list)
    hidden = calls_with_hidden_copies(case, copies)
    for position in copies:
        copy = case.copies[position]
        if copy.kind != "gradient" or _is_asked_for(case, position) or repeats_hidden_copy(case, position, hidden):
            continue
        of_weight = is_weight_gradient(copy, case.flow)
        groups[copy.step, case.owner(position), copy.top_op, of_weight].append(position)
    for (_, _, node, of_weight), group in groups.items():
        stream = case.streams[group[0]]
        born = stream is not None and stream.origin.kind != "inside"
        yield Claim(
            copies=tuple(group),
            site=case.site_of_copy(group[0]),
            origin=case.origin_site(stream.origin) if stream is not None and born else None,
            carriers=tuple(reversed(stream.carriers)) if stream is not None and born else (),
            inferred=any(case.copies[position].inferred for position in group),
            details=(node, "weight" if of_weight else "activation"),
        )


def _is_asked_for(case: Case, position: int) -> bool:
    """Whether a hook, or a backward written in Python, asks for the copy: SW114."""
    copy = case.copies[position]
    return copy.direct and copy.call >= 0 and short_name(case.function(copy.call)) in EXPLICIT


def calls_with_hidden_copies(case: Case, copies: Sequence[int]) -> set[tuple[int | None, int]]:
    """Step and owner of the copies that operators make in forward."""
    hidden = (position for position in copies if case.copies[position].kind == "hidden")
    return {(case.copies[position].step, case.owner(position)) for position in hidden} - {(None, -1)}


def repeats_hidden_copy(case: Case, position: int, hidden: set[tuple[int | None, int]]) -> bool:
    """Whether backward copies the input that forward copied as well: one finding says both, SW103."""
    copy = case.copies[position]
    return copy.backward and case.reads_input(position) and (copy.step, case.owner(position)) in hidden


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a gradient that is copied."""
    first = claims[0]
    node, what = first.details
    position = first.copies[0]
    named = case.payer_name(position) if case.copies[position].call >= 0 else case.forward_name(position)
    backward = f"The backward of `{short_name(named)}`" if named else f"`{node}`"
    if what == "weight":
        return Words(
            message=f"{backward} copies the gradient of its weight into the weight's order.",
            advice="Keep the call's input and its weight in one memory format.",
        )
    if "AccumulateGrad" in node:
        return _words_of_accumulated(case.copies[position], backward)
    if case.reads_input(position):
        return Words(
            message=f"{backward} copies what it saved of forward: {case.operand(position)}.",
            advice="Give the call an input in order, where the stream starts.",
        )
    if not case.reads_gradient(position):
        if is_row_major_convolution(case, position):
            return Words(
                message=f"{backward} computes a gradient in channels_last, and hands it on in row-major order.",
                advice="Make the network and its input channels_last: the gradient is handed on as it is then.",
            )
        return Words(
            message=f"{backward} computes a gradient in another order, and copies it into the one that is wanted.",
            advice="Keep the call's input, weight and output in one memory format.",
        )
    because = f", because of `{_expression(first)}`" if _expression(first) else ""
    message = f"{backward} copies the gradient that reaches it{because}."
    return words_of_arriving(case, claims, message)


def _words_of_accumulated(copy: TracedCopy, backward: str) -> Words:
    moved, is_contiguous_then = "", False
    if copy.sizes is not None and copy.source_strides is not None and copy.strides is not None:
        moved = f" from strides {copy.source_strides} into {copy.strides}"
        comes, is_kept = (layout.Layout(copy.sizes, strides) for strides in (copy.source_strides, copy.strides))
        is_contiguous_then = layout.is_contiguous(comes) and not layout.is_contiguous(is_kept)
    gradient = f"the gradient that {backward[0].lower()}{backward[1:]} gives"
    return Words(
        message=f"`.grad` has the order of its tensor: {gradient} is copied{moved}.",
        advice="Make that tensor contiguous before it requires a gradient." if is_contiguous_then else None,
    )


def _expression(claim: Claim) -> str:
    text = " ".join(((claim.origin.expression if claim.origin else None) or "").split())
    return text if len(text) <= 60 else text[:57] + "…"
