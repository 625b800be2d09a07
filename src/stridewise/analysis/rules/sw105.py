"""SW105 mixed-formats: a convolution whose input and weight disagree on the memory format converts one on every call.

What it means
    The input is channels_last and the weight row-major, or the other way round. A convolution runs in one format:
    channels_last as soon as one of the two suggests it. The other is converted on every call.

Why it happens
    `model.to(memory_format=torch.channels_last)` without converting the input, an input that arrives as a permuted
    HWC image while the model is row-major, or parameters that were loaded or made after the conversion.

How to fix it
    Convert both, once: `model.to(memory_format=torch.channels_last)` where the model is built, and
    `x.to(memory_format=torch.channels_last)` where the batch is made. Or neither.

When to ignore it
    When only the small weight of a single convolution is converted and the input can't be changed.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import CONVOLUTIONS, short_name
from stridewise.analysis.inside import stays_inside, words_inside
from stridewise.analysis.rule import Claim, Words
from stridewise.layout import suggested_format
from stridewise.recording.model import LayoutRow

FIRES = (
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3)
def program():
    conv(x)
""",
    """
x = torch.randn(2, 8, 16, 16)
conv = torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last)
def program():
    conv(x)
""",
)
QUIET = (
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last)
def program():
    conv(x)
""",
    """
x = torch.randn(2, 8, 16, 16)
conv = torch.nn.Conv2d(8, 8, 3)
def program():
    conv(x)
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """Copies held by convolutions of mixed formats, by call."""
    groups: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for position in copies:
        copy = case.copies[position]
        if copy.call >= 0 and copy.kind in ("hidden", "gradient") and _formats(case, copy.call) is not None:
            groups[copy.step, copy.call].append(position)
    for (_, call), group in groups.items():
        formats = _formats(case, call)
        assert formats is not None
        yield Claim(
            copies=tuple(group),
            site=case.site(call),
            inferred=any(case.copies[position].inferred for position in group),
            details=formats,
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a convolution of mixed formats."""
    of_input, of_weight = claims[0].details
    call = case.copies[claims[0].copies[0]].call
    converted = "input" if of_weight != "contiguous" else "weight"
    return Words(
        message=f"`{short_name(case.function(call))}` gets {_say(of_input)} input and has a {_say(of_weight)} weight: "
        f"it converts the {converted} on every call.",
        advice=_advice(case, claims[0], converted),
    )


def _advice(case: Case, claim: Claim, converted: str) -> str:
    if converted == "weight":
        return (
            f"Convert the whole model once: `model.to(memory_format=torch.{_format(claim)})`;"
            " or keep its input row-major."
        )
    streams = [stream for position in claim.copies if (stream := case.streams[position]) is not None]
    streams = [stream for stream in streams if stream.operand == 0]
    born = next((stream.origin.call for stream in streams if stream.origin.kind == "call"), None)
    if born is None or not case.log.calls[born].inputs:
        return f"Convert the input where the batch is made: `x.to(memory_format=torch.{_format(claim)})`."
    if all(stays_inside(case, position) for position in claim.copies):
        return words_inside(case, claim.copies[0])
    start = " ".join((case.site(born).expression or short_name(case.function(born))).split())
    return (
        f"The input comes row-major out of `{start}`: make that keep {_format(claim)}, or keep this module row-major."
    )


def _format(claim: Claim) -> str:
    """The format that one of the two is in."""
    return next(memory_format for memory_format in claim.details if memory_format != "contiguous")


def _formats(case: Case, call: int) -> tuple[str, str] | None:
    """The formats that input and weight suggest, None unless they disagree."""
    if short_name(case.function(call)) not in CONVOLUTIONS:
        return None
    rows = [case.flow.row(ref) for ref in case.log.calls[call].inputs[:2]]
    if len(rows) < 2 or any(row is None or len(row.sizes) not in (4, 5) for row in rows):
        return None
    of_input, of_weight = (suggested_format(row.layout) for row in rows if isinstance(row, LayoutRow))
    return None if of_input == of_weight else (of_input, of_weight)


def _say(memory_format: str) -> str:
    return "row-major" if memory_format == "contiguous" else memory_format
