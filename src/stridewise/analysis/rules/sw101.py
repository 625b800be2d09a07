"""SW101 strided-stream: one expression starts a strided tensor, and several calls pay for it.

What it means
    A tensor whose elements do not lie in memory in the order that kernels want flows through the program. At least
    two calls that received it had to copy it into their order. The finding stands at the expression that started the
    stream (the origin), and lists the calls that pay.

Why it happens
    `permute`, `transpose`, slicing and the like give views: same memory, other strides. Elementwise operations keep
    the order of their input, so a residual connection hands it on through every layer, and each layer norm, linear or
    attention behind it makes its own copy.

How to fix it
    Bring the tensor into order once, at the origin: `x.permute(0, 2, 1).contiguous()`. One copy there replaces all of
    those. For a stream of images, make the model and its input channels_last instead. Where the producer can write
    the order that is wanted, no copy is needed at all.

When to ignore it
    When a copy at the origin would move as many bytes as all that it replaces: the finding says so where it is known.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case, is_channels_last
from stridewise.analysis.functions import short_name
from stridewise.analysis.inside import stays_inside, words_inside
from stridewise.analysis.lineage import Goal, Origin
from stridewise.analysis.origins import site_of_origin, unpacking
from stridewise.analysis.rule import Claim, Words
from stridewise.analysis.savings import saving_at_origin
from stridewise.results import numbers
from stridewise.results.numbers import byte_count

FIRES = (
    """
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    y = x.permute(0, 2, 1)
    for _ in range(3):
        y = y + norm(y)
""",
    """
images = torch.randn(4, 32, 32, 8).permute(0, 3, 1, 2)
head = torch.nn.Sequential(torch.nn.InstanceNorm2d(8), torch.nn.Flatten())
other = torch.nn.Sequential(torch.nn.Flatten())
def program():
    y = images * 2
    head(y), other(y)
""",
)
QUIET = (
    """
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    y = x.permute(0, 2, 1).contiguous()
    for _ in range(3):
        y = y + norm(y)
""",
    """
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x.permute(0, 2, 1))
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The streams with two or more payers."""
    streams: dict[tuple[int | None, Origin], list[int]] = defaultdict(list)
    for position in copies:
        stream = case.streams[position]
        # A gradient of a call before the origin (its stream has no operand) stays when the origin is mended: SW110.
        if stream is None or stream.origin.kind == "inside" or stream.operand is None:
            continue
        # In a channels_last network the stream is as it should be, and what copies it to row-major is at odds with it.
        if not (case.is_channels_last_network and is_channels_last(case.operand_row(position))):
            origin = stream.origin
            key = origin if origin.kind == "call" else Origin(origin.kind, -1, origin.object, origin.name)
            streams[case.copies[position].step, key].append(position)
    for (_, origin), group in streams.items():
        if len({case.copies[position].call for position in group}) < 2:
            continue
        found = [stream for position in group if (stream := case.streams[position]) is not None]
        if origin.kind != "call" and len({stream.ref for stream in found}) < 2 and not found[0].carriers:
            continue  # the same tensor copied again and again: SW102
        site = site_of_origin(case, group)
        yield Claim(
            copies=tuple(group),
            site=site,
            origin=site,
            carriers=tuple(dict.fromkeys(call for stream in found for call in reversed(stream.carriers))),
            inferred=any(stream.inferred for stream in found),
            details=(origin.kind,),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of one origin's stream."""
    copies = [position for claim in claims for position in claim.copies]
    payers = [{case.copies[position].call for position in claim.copies} for claim in claims]
    goals = [stream.goal for position in copies if (stream := case.streams[position]) is not None]
    names = sorted({short_name(case.payer_name(position)) for position in copies})
    subject = _subject(case, claims[0])
    listed = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    count = round(sum(map(len, payers)) / len(claims))
    verb = "copies it into its order" if count == 1 else "copy it into their order"
    return Words(
        message=f"{subject} {_what(goals)}; {numbers.count(count, 'call')} behind it {verb} ({listed}).",
        advice=_advice(case, claims, goals),
        evidence=_first_seen(case, claims[0]),
    )


def _subject(case: Case, claim: Claim) -> str:
    name = claim.site.expression or "This call"
    if claim.site.file is None:
        return f"{name[0].upper()}{name[1:]} arrives as"
    if unpacking(case, claim.site, claim.copies[0]) is not None:
        return f"`{name}` is"
    return f"`{_short(name)}` starts"


def _first_seen(case: Case, claim: Claim) -> tuple[str, ...]:
    """For a stream that no call bore: the first call that it reaches."""
    if claim.site.file is not None:
        return ()
    streams = [stream for position in claim.copies if (stream := case.streams[position]) is not None]
    first = case.site(min(stream.origin.call for stream in streams))
    return (f"first seen at {first.where} in `{_short(first.expression or '')}`",)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


def _what(goals: Sequence[Goal]) -> str:
    changes = {goal.change for goal in goals}
    if changes == {"pack"}:
        return "a tensor with gaps"
    if changes == {"materialize"}:
        return "an expanded tensor"
    return "a tensor in another memory order"


def _advice(case: Case, claims: Sequence[Claim], goals: Sequence[Goal]) -> str:
    claim = claims[0]
    stream = case.streams[claim.copies[0]]
    call = stream.origin.call if stream is not None and stream.origin.kind == "call" else -1
    saving = saving_at_origin(case, claims)
    if saving is not None and not saving.is_one:
        return (
            "Leave it, or use operations that take any strides: a copy here would move"
            f" {byte_count(saving.bytes_moved)} a step, and save {byte_count(saving.replaced_bytes)}."
        )
    if all(stays_inside(case, position) for claim in claims for position in claim.copies):
        return words_inside(case, claim.copies[0])
    gain = f" {saving}." if saving is not None else ""
    if unpacking(case, claim.site, claim.copies[0]) is not None:
        return (
            f"Copy it once, right behind this: `{claim.site.expression} = {claim.site.expression}.contiguous()`.{gain}"
        )
    if call >= 0 and (len(case.log.calls[call].outputs) != 1 or case.function(call).endswith("_")):
        return f"Copy once, right behind this: assign the tensor's `.contiguous()` and use that.{gain}"
    if all(goal.channels_last for goal in goals):
        return f"Bring it into channels_last once, here: `.contiguous(memory_format=torch.channels_last)`.{gain}"
    if claim.site.file is None:
        return f"Hand it over in the order that the model works in, or copy it once before the model.{gain}"
    return f"Copy once, here, with `.contiguous()` behind this expression.{gain}"
