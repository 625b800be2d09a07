"""Every copy in a trace: what it reads and writes, what it changes, who asked for it, what it costs."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from math import prod

from msgspec import Struct

from stridewise import layout
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.functions import EXPLICIT, IMPLICIT, short_name
from stridewise.recording.build import NODE
from stridewise.recording.dtypes import ITEM_SIZES, from_cpp
from stridewise.recording.model import COMPILED, MARK, SCRIPTED
from stridewise.recording.trace import DeviceEvent, Op, Ops, Trace, is_sizes
from stridewise.results import Change, Kind

_COMMUNICATION = "record_param_comms"
"""What torch.distributed puts around its collectives."""
_COMPILED_OPS = ("CompiledFunction", "Torch-Compiled Region", "## Call CompiledFxGraph")
_CROSS_DEVICE = ("HtoD", "DtoH", "HostToDevice", "DeviceToHost", "PtoP", "Peer")


# Equal layers make equal copies.
_change = lru_cache(4096)(layout.change)
_bytes_moved = lru_cache(4096)(layout.bytes_moved)


class TracedCopy(Struct):
    """One copy, with the indices (into `Trace.ops` and `CallLog.calls`) of what it belongs to. -1: nothing."""

    op: int
    top_op: str
    sizes: tuple[int, ...] | None
    """None for a transpose inside a vendor's library: a kernel's name does not tell."""
    source_strides: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    source_dtype: str | None
    dtype: str | None
    change: Change
    kind: Kind
    bytes_moved: int | None
    """None for a dtype or sizes that are not known."""
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
    library: str | None = None
    """What a library's own copy does, in its words."""
    event: int = -1
    """The device event that shows it, for a copy that is no operator."""

    @property
    def cast(self) -> bool:
        """It changes the dtype in the same pass."""
        return self.source_dtype != self.dtype

    @property
    def order(self) -> tuple[int, ...]:
        """The memory order that it makes."""
        assert self.sizes is not None
        assert self.strides is not None
        return layout.memory_order(layout.Layout(self.sizes, self.strides))


def find_copies(trace: Trace, forward_ops: ForwardOps, transfers: Container[int]) -> list[TracedCopy]:
    """The copies that the trace's operators make, in order of time. A trace without shapes shows none.

    `transfers` are operators that are none: what `find_transfers` found.
    """
    finder = _Finder(trace, forward_ops, transfers)
    found = [copy for index in trace.ops.named("aten::copy_") if (copy := finder.copy(index))]
    found.sort(key=lambda copy: trace.ops.start_ns[copy.op])
    return found


def count_without_strides(trace: Trace) -> tuple[int, int]:
    """How many copying operators the trace holds, and how many of them were recorded without strides."""
    copying = trace.ops.named("aten::copy_")
    return len(copying), sum(len(trace.ops.args[index].strides) < 2 for index in copying)


def is_transfer(event: DeviceEvent) -> bool:
    """Whether a device event moves data between a device and the host, or another device."""
    return event.category == "gpu_memcpy" and any(marker in event.name for marker in _CROSS_DEVICE)


def find_transfers(trace: Trace) -> dict[int, str]:
    """The `aten::copy_` that go between devices through a temporary, with the name of the transfer that they end in.

    Inside such a copy others run: into the temporary, from it to the other device, and there into the destination.
    """
    found = {}
    for event in filter(is_transfer, trace.device_events):
        outer = [op for op in trace.ops.around(event.op) if trace.ops.text(op) == "aten::copy_"]
        if len(outer) > 1:
            found[outer[-1]] = event.name
    return found


def top_op(ops: Ops, index: int) -> str:
    """The name of the outermost operator around one, below the call, backward node or TorchScript that holds it."""
    return ops.text(outermost(ops, index))


def outermost(ops: Ops, index: int) -> int:
    """That operator."""
    inner = list(takewhile(lambda outer: not ops.text(outer).startswith((MARK, NODE)), ops.around(index)))
    while len(inner) > 1 and _is_scripted(ops, inner[-1]):
        inner.pop()
    return inner[-1] if inner else index


def operators_around(ops: Ops, index: int) -> Iterator[str]:
    """The short names of the operators around one, from the inside out, below what called or holds them."""
    outer = takewhile(lambda outer: not ops.text(outer).startswith((MARK, NODE)), ops.around(index))
    return (short_name(ops.text(op)) for op in islice(outer, 1, None))


def _is_scripted(ops: Ops, index: int) -> bool:
    """Whether an operator is the run of a scripted function or method, which goes by that one's bare name.

    So does a custom autograd Function, but that has a sequence number.
    """
    name, args = ops.text(index), ops.args[index]
    is_bare = name.isidentifier() and name != _COMMUNICATION and not name.startswith(_COMPILED_OPS)
    return is_bare and bool(args.dims) and args.sequence is None and ops.node[index] < 0


def call_marks(ops: Ops) -> Iterator[int]:
    """The recorder's marks of calls that its log knows."""
    for index in ops.starting(MARK):
        if ops.call[index] >= 0 and ops.text(index)[len(MARK) :].isdecimal():
            yield index


def step_of(trace: Trace, starts: Sequence[int], at_ns: int | None) -> int | None:
    """The number of the step that a moment lies in; `starts` are the steps' starts."""
    if at_ns is None:
        return None
    position = bisect_right(starts, at_ns) - 1
    return position if position >= 0 and at_ns < trace.steps[position].end_ns else None


class _Finder:
    def __init__(self, trace: Trace, forward_ops: ForwardOps, transfers: Container[int]) -> None:
        self.trace = trace
        self.forward_ops = forward_ops
        self.transfers = transfers
        self.starts = [step.start_ns for step in trace.steps]
        self.device_events = _device_events_by_copy(trace)
        self.last_calls = _CallTimes(trace)
        self.without_memory: dict[int, bool] = {}
        """What is known of calls: whether their tensors have no memory."""

    def copy(self, index: int) -> TracedCopy | None:
        args = self.trace.ops.args[index]
        if len(args.dims) < 2 or len(args.strides) < 2:
            return None
        sizes, source_sizes = args.dims[0], args.dims[1]
        strides, source_strides = args.strides[0], args.strides[1]
        if sizes != source_sizes or not is_sizes(sizes) or not is_sizes(strides) or not is_sizes(source_strides):
            return None
        if not len(sizes) == len(strides) == len(source_strides) or prod(sizes) >= 1 << 56:
            return None
        events = self.device_events.get(index, [])
        if index in self.transfers or any(map(is_transfer, events)):
            return None
        sizes, strides, source_strides = tuple(sizes), tuple(strides), tuple(source_strides)
        change = _change(sizes, source_strides, strides)
        if change is None or self.moves_nothing(index):
            return None
        dtype, source_dtype = (from_cpp(name) or name or None for name in (*args.types, "", "")[:2])
        itemsize, source_itemsize = (ITEM_SIZES.get(name or "") for name in (dtype, source_dtype))
        op = self.trace.ops[index]
        call, inferred = self.call_of(op)
        direct = call >= 0
        if op.node >= 0 and op.call < 0:
            call, inferred, direct = self.forward_call(op.node)
        duration = sum(event.duration_ns for event in events) if events else op.end_ns - op.start_ns
        return TracedCopy(
            op=index,
            top_op=top_op(self.trace.ops, index),
            sizes=sizes,
            source_strides=source_strides,
            strides=strides,
            source_dtype=source_dtype,
            dtype=dtype,
            change=change,
            kind=self.kind(index, op, call),
            bytes_moved=(
                _bytes_moved(sizes, source_strides, source_itemsize, strides, itemsize)
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

    def moves_nothing(self, index: int) -> bool:
        """Whether a copy is of meta or fake tensors, which have no memory; known only of logged calls.

        So it is where the call, in backward the forward call, makes nothing but such, or is given nothing but such.
        """
        ops, log = self.trace.ops, self.trace.log
        call, node = ops.call[index], ops.node[index]
        if call < 0 and node >= 0:
            forward, _ = self.forward_ops.of_node(node)
            call = -1 if forward is None else ops.call[forward]
        if log is None or call < 0:
            return False
        if call not in self.without_memory:
            row = log.calls[call]
            positions = ([log.refs[ref].layout for ref in refs] for refs in (row.outputs, row.inputs))
            devices = ({log.layouts[at].device for at in known if at >= 0} for known in positions)
            self.without_memory[call] = next(filter(None, devices), None) == {"meta"}
        return self.without_memory[call]

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

    def kind(self, index: int, op: Op, call: int) -> Kind:
        if self.is_compiled(index, op):
            return "compiled"
        if op.node >= 0:
            return "gradient"
        log = self.trace.log
        if log is None or op.call < 0 or log.functions[log.calls[op.call].function].startswith(SCRIPTED):
            name = top_op(self.trace.ops, index).removeprefix("aten::")
        else:
            name = short_name(log.functions[log.calls[call].function])
        return "explicit" if name in EXPLICIT else "implicit" if name in IMPLICIT else "hidden"

    def is_compiled(self, index: int, op: Op) -> bool:
        log, ops = self.trace.log, self.trace.ops
        if log is not None and op.call >= 0 and log.functions[log.calls[op.call].function] == COMPILED:
            return True
        return any(ops.text(outer).startswith(_COMPILED_OPS) for outer in ops.around(index))


class _CallTimes:
    """The nearest call before an operator that no call holds: custom Functions, scripted and C++ code."""

    def __init__(self, trace: Trace) -> None:
        self.times: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        ops = trace.ops
        for index in call_marks(ops):
            self.times[ops.thread[index], ops.module_call[index]].append((ops.start_ns[index], ops.call[index]))

    def before(self, op: Op) -> int:
        calls = self.times.get((op.thread, op.module_call), [])
        position = bisect_right(calls, (op.start_ns, 1 << 62))
        return calls[position - 1][1] if position else -1


def _device_events_by_copy(trace: Trace) -> dict[int, list[DeviceEvent]]:
    found: dict[int, list[DeviceEvent]] = defaultdict(list)
    ops = trace.ops
    copying = set(ops.named("aten::copy_"))
    for event in trace.device_events:
        index = event.op
        while index >= 0 and index not in copying:
            index = ops.parent[index]
        if index >= 0:
            found[index].append(event)
    return found
