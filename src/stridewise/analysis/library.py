"""Copies inside oneDNN, from the verbose lines that a recording can hold, or that are all there is."""

from bisect import bisect_right
from math import prod

from stridewise import layout
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.copies import TracedCopy, call_marks, step_of
from stridewise.recording import onednn
from stridewise.recording.build import NODE
from stridewise.recording.dtypes import from_onednn
from stridewise.recording.model import CallLog
from stridewise.recording.trace import Spans, Trace


def library_copies(trace: Trace, forward_ops: ForwardOps) -> list[TracedCopy]:
    """The reorders that oneDNN logged, as copies of kind `library`, each with the call that it ran in.

    The recorder noted which bytes of the log were written during which call. In backward there are no calls: there
    the line's time finds the operator. A reorder that changes the dtype alone is no copy.
    """
    if not trace.library:
        return []
    attribution = _Attribution(trace, forward_ops)
    found = []
    for record in trace.library:
        if not isinstance(record, onednn.Reorder):
            continue
        change: layout.Change | None = "reorder"  # a blocked format has no strides, and is another order
        if record.source_strides is not None and record.strides is not None:
            change = layout.change(record.sizes, record.source_strides, record.strides)
        elif record.source_format == record.format:
            change = None
        if change is None or not prod(record.sizes):
            continue
        op, call, node, inferred = attribution.of(record)
        found.append(
            TracedCopy(
                op=op,
                top_op=f"oneDNN reorder {record.source_format} -> {record.format}",
                sizes=record.sizes,
                source_strides=record.source_strides,
                strides=record.strides,
                source_dtype=from_onednn(record.source_dtype),
                dtype=from_onednn(record.dtype),
                change=change,
                kind="library",
                bytes_moved=record.bytes_moved,
                bytes_written=prod(record.sizes) * record.itemsize,
                duration_ns=record.duration_ns,
                on_device=False,
                step=attribution.step(record, op, call),
                call=call,
                node=node,
                backward=node >= 0,
                direct=node < 0,
                inferred=inferred,
                library=f"oneDNN reorder {record.source_format} -> {record.format}",
            )
        )
    return found


class CallsOfLines:
    """Which call printed a line of oneDNN's log: the recorder noted which bytes of it were written in which."""

    def __init__(self, log: CallLog | None) -> None:
        log = log or CallLog()
        positions = {row.index: position for position, row in enumerate(log.calls)}
        known = [(call, first, end) for call, first, end in log.library_ranges if call in positions and first < end]
        self._ranges = Spans()  # nested as calls are: the innermost holds the line
        self._ranges.extend(
            [str(positions[call]) for call, _, _ in known],
            [first for _, first, _ in known],
            [end for _, _, end in known],
            [0] * len(known),
        )

    def call_at(self, offset: int) -> int:
        """The position of the call that wrote a byte of the log; -1: none did."""
        span = self._ranges.innermost(0, offset) if len(self._ranges) else -1
        return int(self._ranges.text(span)) if span >= 0 else -1


class _Attribution:
    def __init__(self, trace: Trace, forward_ops: ForwardOps) -> None:
        self.trace = trace
        self.lines = CallsOfLines(trace.log)
        ops = trace.ops
        self.call_ops = {ops.call[index]: index for index in call_marks(ops)}
        self.nodes = sorted((ops.start_ns[index], ops.end_ns[index], index) for index in ops.starting(NODE))
        self.node_starts = [start for start, _, _ in self.nodes]
        self.forward_ops = forward_ops
        self.step_starts = [step.start_ns for step in trace.steps]

    def of(self, record: onednn.Reorder) -> tuple[int, int, int, bool]:
        """Operator, call and backward node of a reorder (-1 where there is none), and whether they are concluded."""
        node = self._node_at(record)
        if node >= 0:
            forward, inferred = self.forward_ops.of_node(node)
            return node, -1 if forward is None else self.trace.ops.call[forward], node, inferred
        if (call := self.lines.call_at(record.offset)) >= 0:
            return self.call_ops.get(call, -1), call, -1, False
        return -1, -1, -1, self.trace.log is not None  # a log of oneDNN alone knows no calls

    def _node_at(self, record: onednn.Reorder) -> int:
        if record.start_ns is None:
            return -1
        at = record.start_ns - self.trace.base_ns + record.duration_ns // 2
        position = bisect_right(self.node_starts, at) - 1
        while position >= 0:
            start, end, index = self.nodes[position]
            if start <= at < end:
                return index
            position -= 1
            if at - start > 10**10:
                break
        return -1

    def step(self, record: onednn.Reorder, op: int, call: int) -> int | None:
        """The step that a reorder ran in, by its call's time, else by its own."""
        if op >= 0:
            return step_of(self.trace, self.step_starts, self.trace.ops.start_ns[op])
        if record.start_ns is None:
            return None
        return step_of(self.trace, self.step_starts, record.start_ns - self.trace.base_ns)
