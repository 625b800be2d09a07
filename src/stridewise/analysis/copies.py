"""Every copy in a trace: what it reads and writes, what it changes, who asked for it, what it costs."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from math import prod

from msgspec import Struct

from stridewise import layout
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.functions import EXPLICIT, IMPLICIT, short_name
from stridewise.recording.dtypes import ITEM_SIZES, from_cpp
from stridewise.recording.kineto import NODE
from stridewise.recording.model import COMPILED, MARK, DeviceEvent, Op, Trace
from stridewise.results import Change, Kind

_COMPILED_OPS = ("CompiledFunction", "Torch-Compiled Region", "## Call CompiledFxGraph")
_CROSS_DEVICE = ("HtoD", "DtoH", "HostToDevice", "DeviceToHost", "PtoP", "Peer")


class TracedCopy(Struct):
    """One copy, with the indices (into `Trace.ops` and `CallLog.calls`) of what it belongs to. -1: nothing."""

    op: int
    top_op: str
    sizes: tuple[int, ...]
    source_strides: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    source_dtype: str | None
    dtype: str | None
    change: Change
    kind: Kind
    bytes_moved: int | None
    """None for a dtype whose size is not known."""
    bytes_written: int | None
    duration_ns: int | None
    on_device: bool
    step: int | None
    call: int
    """The logged call that holds it; in backward, the forward call whose node holds it."""
    node: int
    backward: bool
    direct: bool
    """The call itself holds it; False for a gradient, which only its forward call explains."""
    inferred: bool

    @property
    def cast(self) -> bool:
        """It changes the dtype in the same pass."""
        return self.source_dtype != self.dtype

    @property
    def order(self) -> tuple[int, ...]:
        """The memory order that it makes."""
        assert self.strides is not None
        return layout.memory_order(layout.Layout(self.sizes, self.strides))


def find_copies(trace: Trace, forward_ops: ForwardOps) -> list[TracedCopy]:
    """The copies that the trace's operators make, in order of time. A trace without shapes shows none."""
    finder = _Finder(trace, forward_ops)
    found = [
        copy for index, op in enumerate(trace.ops) if op.name == "aten::copy_" and (copy := finder.copy(index, op))
    ]
    found.sort(key=lambda copy: trace.ops[copy.op].start_ns)
    return found


def count_without_strides(trace: Trace) -> tuple[int, int]:
    """How many copying operators the trace holds, and how many of them were recorded without strides."""
    copying = [op for op in trace.ops if op.name == "aten::copy_"]
    return len(copying), sum(len(op.args.strides) < 2 for op in copying)


def step_of(trace: Trace, starts: Sequence[int], at_ns: int) -> int | None:
    """The number of the step that a moment lies in; `starts` are the steps' starts."""
    position = bisect_right(starts, at_ns) - 1
    return position if position >= 0 and at_ns < trace.steps[position].end_ns else None


class _Finder:
    def __init__(self, trace: Trace, forward_ops: ForwardOps) -> None:
        self.trace = trace
        self.forward_ops = forward_ops
        self.starts = [step.start_ns for step in trace.steps]
        self.device_events = _device_events_by_copy(trace)
        self.has_device = bool(trace.device_events)
        self.last_calls = _CallTimes(trace)

    def copy(self, index: int, op: Op) -> TracedCopy | None:
        args = op.args
        if len(args.dims) < 2 or len(args.strides) < 2:
            return None
        sizes, source_sizes = args.dims[0], args.dims[1]
        strides, source_strides = args.strides[0], args.strides[1]
        if sizes != source_sizes or not _is_ints(sizes) or not _is_ints(strides) or not _is_ints(source_strides):
            return None
        if not len(sizes) == len(strides) == len(source_strides) or prod(sizes) >= 1 << 56:
            return None
        events = self.device_events.get(index, [])
        if any(marker in event.name for event in events for marker in _CROSS_DEVICE):
            return None
        sizes, strides, source_strides = tuple(sizes), tuple(strides), tuple(source_strides)
        change = layout.change(sizes, source_strides, strides)
        if change is None:
            return None
        dtype, source_dtype = (from_cpp(name) or name or None for name in (*args.types, "", "")[:2])
        itemsize, source_itemsize = (ITEM_SIZES.get(name or "") for name in (dtype, source_dtype))
        call, inferred = self.call_of(op)
        direct = call >= 0
        if op.node >= 0 and op.call < 0:
            call, inferred, direct = self.forward_call(op.node)
        duration = sum(event.duration_ns for event in events) if events else op.end_ns - op.start_ns
        return TracedCopy(
            op=index,
            top_op=self.top_op(op),
            sizes=sizes,
            source_strides=source_strides,
            strides=strides,
            source_dtype=source_dtype,
            dtype=dtype,
            change=change,
            kind=self.kind(op, call),
            bytes_moved=(
                layout.bytes_moved(sizes, source_strides, source_itemsize, strides, itemsize)
                if itemsize and source_itemsize
                else None
            ),
            bytes_written=prod(sizes) * itemsize if itemsize else None,
            duration_ns=duration,
            on_device=bool(events),
            step=step_of(self.trace, self.starts, op.start_ns),
            call=call,
            node=op.node,
            backward=op.node >= 0,
            direct=direct,
            inferred=inferred,
        )

    def call_of(self, op: Op) -> tuple[int, bool]:
        """The logged call around an operator; without one, the nearest before it in the same module, inferred."""
        if op.call >= 0 or op.node >= 0 or self.trace.log is None:
            return op.call, False
        return self.last_calls.before(op), True

    def forward_call(self, node: int) -> tuple[int, bool, bool]:
        forward, inferred = self.forward_ops.of_node(node)
        if forward is None:
            return -1, True, False
        op = self.trace.ops[forward]
        call, nearest = self.call_of(op)
        return call, inferred or nearest, False

    def top_op(self, op: Op) -> str:
        """The outermost operator below the call or the backward node that holds this one."""
        ops = self.trace.ops
        while op.parent >= 0 and not ops[op.parent].name.startswith((MARK, NODE)):
            op = ops[op.parent]
        return op.name

    def kind(self, op: Op, call: int) -> Kind:
        if self.is_compiled(op):
            return "compiled"
        if op.node >= 0:
            return "gradient"
        log = self.trace.log
        if log is None or op.call < 0:
            name = self.top_op(op).removeprefix("aten::")
        else:
            name = short_name(log.functions[log.calls[call].function])
        return "explicit" if name in EXPLICIT else "implicit" if name in IMPLICIT else "hidden"

    def is_compiled(self, op: Op) -> bool:
        log, ops = self.trace.log, self.trace.ops
        if log is not None and op.call >= 0 and log.functions[log.calls[op.call].function] == COMPILED:
            return True
        while True:
            if op.name.startswith(_COMPILED_OPS):
                return True
            if op.parent < 0:
                return False
            op = ops[op.parent]


class _CallTimes:
    """The nearest call before an operator that no call holds: custom Functions, scripted and C++ code."""

    def __init__(self, trace: Trace) -> None:
        self.times: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for op in trace.ops:
            if op.name.startswith(MARK) and op.call >= 0 and op.name[len(MARK) :].isdecimal():
                self.times[op.thread, op.module_call].append((op.start_ns, op.call))

    def before(self, op: Op) -> int:
        calls = self.times.get((op.thread, op.module_call), [])
        position = bisect_right(calls, (op.start_ns, 1 << 62))
        return calls[position - 1][1] if position else -1


def _device_events_by_copy(trace: Trace) -> dict[int, list[DeviceEvent]]:
    found: dict[int, list[DeviceEvent]] = defaultdict(list)
    ops = trace.ops
    for event in trace.device_events:
        index = event.op
        while index >= 0 and ops[index].name != "aten::copy_":
            index = ops[index].parent
        if index >= 0:
            found[index].append(event)
    return found


def _is_ints(value: object) -> bool:
    """Whether a trace's value can be sizes or strides: of a tensor that could exist."""
    return isinstance(value, list) and all(type(entry) is int and 0 <= entry < 1 << 48 for entry in value)
