"""Events that mark layout copies and their origins in a trace, for Perfetto to show beside the operators."""

from collections.abc import Iterator
from typing import Any

import msgspec

from stridewise.analysis.case import Case
from stridewise.findings import Finding, Site
from stridewise.recording.rewrite import MARKS
from stridewise.recording.trace import Trace

_CATEGORY = "stridewise"


def annotations(case: Case, findings: dict[int, Finding]) -> Iterator[bytes]:
    """The marks of a trace as JSON, an event each: copies and origins, with arrows from these to those.

    `findings` are what copies, by position, are charged to. One row of marks stands for each thread of the trace, and
    one for each stream of a device.
    """
    yield _encode(ph="M", name="process_name", tid=0, ts=0, args={"name": "stridewise: layout copies"})
    rows: dict[object, int] = {}
    for position in range(len(case.copies)):
        finding = findings.get(position)
        for start_ns, end_ns, row in _spans(case, position):
            tid = rows.setdefault(row, len(rows) + 1)
            if tid == len(rows):
                yield _encode(ph="M", name="thread_name", tid=tid, ts=0, args={"name": row})
            yield _encode(
                ph="X",
                cat=_CATEGORY,
                name=_name(case, position, finding),
                tid=tid,
                ts=start_ns / 1000,
                dur=(end_ns - start_ns) / 1000,
                args=_args(case, position, finding),
            )
            if (origin := _origin_op(case, position)) is not None:
                yield from _origin(case.trace, origin, position, tid, start_ns)


def _spans(case: Case, position: int) -> Iterator[tuple[int, int, str]]:
    """When a copy ran, and where: on its thread, and for each of its kernels on its stream."""
    ops, copy = case.trace.ops, case.copies[position]
    for event in case.events_of_copy(position):
        yield event.start_ns, event.start_ns + event.duration_ns, f"device {event.device}, stream {event.stream}"
    if copy.op >= 0 and copy.event < 0:
        yield ops.start_ns[copy.op], ops.end_ns[copy.op], f"thread {ops.thread[copy.op] + 1}"


def _origin(trace: Trace, origin: int, position: int, tid: int, at_ns: int) -> Iterator[bytes]:
    ops = trace.ops
    start, end = ops.start_ns[origin] / 1000, ops.end_ns[origin] / 1000
    yield _encode(ph="X", cat=_CATEGORY, name=f"origin: {ops.text(origin)}", tid=tid, ts=start, dur=end - start)
    arrow: dict[str, Any] = {"cat": _CATEGORY, "name": "stream", "id": MARKS + position, "tid": tid}
    yield _encode(ph="s", ts=start, **arrow)
    yield _encode(ph="f", bp="e", ts=at_ns / 1000, **arrow)


def _origin_op(case: Case, position: int) -> int | None:
    stream = case.streams[position]
    if stream is not None and stream.origin.kind == "call":
        return case.op_of_call(stream.origin.call)
    return case.probable_view(position)


def _name(case: Case, position: int, finding: Finding | None) -> str:
    copy = case.copies[position]
    what = copy.library or f"{copy.change} in {case.payer_name(position)}"
    return f"{finding.code} {what}" if finding is not None else what


def _args(case: Case, position: int, finding: Finding | None) -> dict[str, Any]:
    copy = case.copies[position]
    args = {
        "finding": f"{finding.code} {finding.title}" if finding is not None else None,
        "message": finding.message if finding is not None else None,
        "not taxed": case.reasons[position],
        "kind": copy.kind,
        "change": copy.change,
        "sizes": copy.sizes,
        "source strides": copy.source_strides,
        "strides": copy.strides,
        "bytes moved": copy.bytes_moved,
        "payer": _place(case.site_of_copy(position)),
        "origin": _place(finding.origin) if finding is not None and finding.origin is not None else None,
    }
    return {key: value for key, value in args.items() if value is not None}


def _place(site: Site) -> str | None:
    words = [site.where if site.file else None, site.expression, site.module]
    return ", ".join(filter(None, words)) or None


def _encode(**event: Any) -> bytes:
    return msgspec.json.encode({"pid": MARKS, **event})
