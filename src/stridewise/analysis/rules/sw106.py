"""SW106 format-lost: a call takes a channels_last tensor and gives one that is not, and a later call pays.

What it means
    This is the call at which the network falls out of channels_last. What it returns is row-major (or in some other
    order), and a call behind it converts it back or copies it. The copies themselves are charged to other findings;
    this one says which call to look at.

Why it happens
    The operator has no channels_last kernel (instance norm, some indexing and reshaping, some poolings in backward),
    or it combines the tensor with one in another format and takes that one's order.

How to fix it
    Use an operator that keeps the format (GroupNorm with one group per channel instead of InstanceNorm, BatchNorm),
    put the channels_last operand first, or leave the part of the network around this call row-major.

When to ignore it
    When the network ends soon after and the classifier wants a row-major tensor anyway.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import CONVOLUTIONS, COPYING_TO_ORDER, short_name
from stridewise.analysis.lineage import Stream, is_weight_gradient
from stridewise.analysis.rule import Claim, Words
from stridewise.layout import Layout, suggested_format
from stridewise.recording.model import LayoutRow

FIRES = (
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
norm = torch.nn.InstanceNorm2d(8)
def program():
    conv(norm(conv(x)))
""",
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
channels = torch.arange(0, 8, 2)
weight = torch.randn(2, 4, 16, 16).to(memory_format=torch.channels_last)
def program():
    (conv(x).index_select(1, channels) * weight).sum().backward()
""",
)
QUIET = (
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
norm = torch.nn.BatchNorm2d(8)
def program():
    conv(norm(conv(x)))
""",
    """
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
norm = torch.nn.InstanceNorm2d(8)
def program():
    norm(x)
""",
)

_FORMATS = ("channels_last", "channels_last_3d")


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """Calls that lose the format of their input, where a copy that makes channels_last again has its stream pass."""
    del copies  # every taxed copy is a witness, whoever is charged with it
    losers: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for position in case.taxed:
        stream = case.streams[position]
        if stream is not None and stream.goal.channels_last and stream.goal.change == "reorder":
            loser = _loser(case, position, stream)
            if loser is not None:
                losers[case.copies[position].step, loser].append(position)
    for (_, call), group in losers.items():
        yield Claim(
            copies=(),
            site=case.site(call),
            calls=(call,),
            witnesses=tuple(group),
            inferred=any(case.copies[position].inferred for position in group),
            details=(case.function(call),),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of the call that lost the format."""
    function = short_name(claims[0].details[0])
    payers = sorted({short_name(case.payer_name(position)) for claim in claims for position in claim.witnesses})
    paid = _joined(payers[:4])
    several = len(payers) > 1
    other = " beside one in another order" if _is_mixed(case, claims[0].calls[0]) else ""
    only_backward = all(case.copies[position].backward for claim in claims for position in claim.witnesses)
    return Words(
        message=(
            f"The backward of `{function}` hands on a row-major gradient; {'those' if several else 'that'} of {paid} "
            f"{'convert' if several else 'converts'} it to channels_last."
            if only_backward
            else f"`{function}` takes a channels_last tensor{other} and returns one that is not; {paid} behind it "
            f"{'convert' if several else 'converts'} it back."
        ),
        advice=(
            "Bring the other operand into channels_last before they meet."
            if other
            else "Use an operator that keeps channels_last here, or keep this part of the network row-major."
        ),
        evidence=tuple(dict.fromkeys(_evidence(case, claim) for claim in claims))[:3],
    )


def _joined(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def loses_format(case: Case, call: int) -> bool:
    """Whether a call's input is channels_last and its output, of 4 or 5 dimensions, is not."""
    if short_name(case.function(call)) in COPYING_TO_ORDER:
        return False
    row = case.log.calls[call]
    before = [entry for ref in row.inputs if (entry := case.flow.row(ref)) is not None]
    after = [entry for ref in row.outputs if (entry := case.flow.row(ref)) is not None]
    return any(map(_is_channels_last, before)) and any(
        len(entry.sizes) in (4, 5) and not _is_channels_last(entry) for entry in after
    )


def _is_mixed(case: Case, call: int) -> bool:
    """Whether a call combines images of several memory formats: it is not the operator that is at fault."""
    rows = [row for ref in case.log.calls[call].inputs if (row := case.flow.row(ref)) is not None]
    images = [row for row in rows if len(row.sizes) in (4, 5) and short_name(case.function(call)) not in CONVOLUTIONS]
    return len({_is_channels_last(row) for row in images}) > 1


def _loser(case: Case, position: int, stream: Stream) -> int | None:
    """The call on a copy's stream that lost the format; in backward, the one that handed on a row-major gradient."""
    passed = [stream.origin.call, *stream.carriers] if stream.origin.kind == "call" else list(stream.carriers)
    loser = next((call for call in passed if call >= 0 and loses_format(case, call)), None)
    copy = case.copies[position]
    is_gradient = copy.backward and not copy.direct and stream.operand is None
    if loser is not None or not is_gradient or is_weight_gradient(copy, case.flow):
        return loser
    seen, front = {copy.call}, [copy.call]
    while front:
        reached = [consumer for call in front for consumer in case.flow.consumers.get(call, []) if consumer not in seen]
        for consumer in reached:
            if _gets_channels_last_gradient(case, consumer):
                return consumer
        seen.update(reached)
        front = reached
    return None


def _gets_channels_last_gradient(case: Case, call: int) -> bool:
    """Whether the first operator of a call's backward reads a channels_last gradient of the call's output."""
    row = case.log.calls[call]
    sizes = {entry.sizes for ref in row.outputs if (entry := case.flow.row(ref)) is not None}
    for node in case.nodes.get(call, []):
        ops = case.trace.ops
        inside = (index for index in range(node + 1, min(node + 4, len(ops))) if ops.node[index] == node)
        args = next((args for args in map(ops.args.__getitem__, inside) if args.strides), None)
        for dims, strides in zip(args.dims, args.strides, strict=False) if args else ():
            if tuple(dims) in sizes and len(dims) in (4, 5):
                return suggested_format(Layout(tuple(dims), tuple(strides))) in _FORMATS
    return False


def _is_channels_last(row: LayoutRow) -> bool:
    return len(row.sizes) in (4, 5) and suggested_format(row.layout) in _FORMATS


def _evidence(case: Case, claim: Claim) -> str:
    copy = case.copies[claim.witnesses[0]]
    return f"{short_name(case.payer_name(claim.witnesses[0]))} copies {copy.source_strides} to {copy.strides}"
