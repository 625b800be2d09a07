"""Where a copy of one's own could stand for those that calls make: the points on the streams of charged copies."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod

import msgspec
from msgspec import Struct

from stridewise import layout
from stridewise.analysis.lineage import Stream
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.recording.model import LayoutRow
from stridewise.repair.context import Context


class Point(Struct, frozen=True):
    """Where streams pass, or begin: some outputs of a call, or a tensor that the model is given."""

    call: int
    """The call; -1 for what the model is given."""
    outputs: tuple[int, ...]
    """Which of its outputs; for what the model is given, the tensor's number as an object."""
    refs: tuple[int, ...]
    """The tensors there."""
    copies: tuple[int, ...]
    """The copies behind it that one here is to replace."""
    findings: tuple[str, ...]
    repeats: int = -1
    """The call behind which a copy would be the same as one here: nothing else takes what is in between."""


def points(context: Context, codes: Sequence[str], wanted: Callable[[int], bool]) -> Iterator[Point]:
    """The origins of the copies that findings of some codes are charged with, and what their streams share behind."""
    case = context.case
    groups: dict[tuple[int | None, int, int], list[int]] = defaultdict(list)
    charged: dict[int, str] = {}
    for finding, copies in context.findings(*codes):
        for position in copies:
            stream = case.streams[position]
            if stream is None or stream.origin.kind == "inside" or not wanted(position):
                continue
            charged[position] = finding.fingerprint
            call = stream.origin.call if stream.origin.kind == "call" else -1
            groups[case.copies[position].step, call, stream.origin.object].append(position)
    for (_, call, number), group in groups.items():
        for found in (_at_origin(context, call, number, group), _behind(context, group)):
            if found is not None:
                findings = tuple(dict.fromkeys(charged[position] for position in found.copies))
                yield msgspec.structs.replace(found, findings=findings)


def _at_origin(context: Context, call: int, number: int, group: list[int]) -> Point | None:
    case = context.case
    if call >= 0:
        return _on_call(context, call, group)
    stream = case.streams[group[0]]
    assert stream is not None
    row = case.log.calls[stream.origin.call].inputs
    ref = next((ref for ref in row if case.log.refs[ref].object == number), None)
    return None if ref is None or stream.origin.kind != "input" else Point(-1, (number,), (ref,), tuple(group), ())


def _behind(context: Context, group: list[int]) -> Point | None:
    """The last carrier that all of them have in common. Gradients have no carriers: they are left out."""
    forward = [position for position in group if _stream(context, position).operand is not None]
    chains = [tuple(reversed(_stream(context, position).carriers)) for position in forward]
    shared = -1
    for calls in zip(*chains, strict=False):
        if len(set(calls)) > 1:
            break
        shared = calls[0]
    point = _on_call(context, shared, forward) if shared >= 0 else None
    origin = _stream(context, forward[0]).origin.call if forward else -1
    if point is not None and _is_one_link(context, origin, shared, chains[0]):
        return msgspec.structs.replace(point, repeats=origin)
    return point


def _is_one_link(context: Context, origin: int, shared: int, chain: tuple[int, ...]) -> bool:
    """Whether a copy behind the origin is one behind that carrier: all between are views that nothing else takes."""
    flow, refs = context.case.flow, context.case.log.refs
    path = [origin, *chain[: chain.index(shared) + 1]]
    made = [context.case.log.calls[call].outputs for call in path]
    if any(len(outputs) != 1 for outputs in made):
        return False
    rows = [flow.row(ref) for (ref,) in made]
    alike = {
        (refs[ref].storage, prod(row.sizes) if row is not None else -1) for (ref,), row in zip(made, rows, strict=True)
    }
    alone = all(set(flow.consumers[call]) == {then} for call, then in pairwise(path))
    return alone and len(alike) == 1


def _on_call(context: Context, call: int, group: list[int]) -> Point | None:
    made = context.case.log.calls[call].outputs
    outputs = sorted({_output(context, call, position) for position in group})
    if outputs[-1] >= len(made):
        return None
    return Point(call, tuple(outputs), tuple(made[output] for output in outputs), tuple(group), ())


def _output(context: Context, call: int, position: int) -> int:
    """Which output of a call a copy's stream goes through: what the next call of the stream was given."""
    log, stream = context.case.log, _stream(context, position)
    made = [log.refs[ref].object for ref in log.calls[call].outputs]
    if stream.operand is None:
        return 0 if len(made) == 1 else len(made)
    path = [context.case.copies[position].call, *stream.carriers, stream.origin.call]
    behind = path[path.index(call) - 1]
    given = {log.refs[ref].object for ref in log.calls[behind].inputs}
    known = [output for output, number in enumerate(made) if number in given]
    return known[0] if known else 0 if len(made) == 1 else len(made)


def _stream(context: Context, position: int) -> Stream:
    stream = context.case.streams[position]
    assert stream is not None
    return stream


def bytes_saved(
    context: Context, found: Sequence[Point], is_met: Callable[[LayoutRow], bool], calls: Sequence[int]
) -> int:
    """Bytes that the copies behind some points move, less those that copies there would move.

    `calls` are all that the edited expressions make. One that already gives what is wanted costs nothing.
    """
    case = context.case
    replaced = sum(
        case.copies[position].bytes_moved or 0 for position in {at for point in found for at in point.copies}
    )
    outputs = sorted({output for point in found for output in point.outputs})
    refs = [ref for point in found if point.call < 0 for ref in point.refs]
    for call in calls:
        made = case.log.calls[call].outputs
        refs += [made[output] for output in outputs if output < len(made)]
    rows = [row for ref in refs if (row := case.flow.row(ref)) is not None and not is_met(row)]
    return replaced - sum(map(_cost, rows))


def _cost(row: LayoutRow) -> int:
    size = ITEM_SIZES.get(row.dtype, 0)
    return layout.bytes_moved(row.sizes, row.strides, size, layout.contiguous_strides(row.sizes), size)
