"""Puts what a reader found into the order of a trace: operators nested by time and thread, kernels by their launch."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from stridewise.recording import onednn
from stridewise.recording.model import END_MARK, MARK, MODULE_MARK, CallLog
from stridewise.recording.nesting import Numbers, column, integers, nest, order_of, taken
from stridewise.recording.steps import find_steps
from stridewise.recording.trace import DeviceEvent, OpArgs, Ops, Spans, Trace, decode_args

LEFT_OUT = "What threads did that were at work before the recording began is left out."
LOG_LOST = "`stridewise` recorded this, and its call log was lost with the end of the file: no source lines are known."
NODE = "autograd::engine::evaluate_function: "
"""Prefix of the operator that runs one node of the backward graph."""

DEEPEST_OP = 200
"""How deep operators may lie in each other; torch's do some 30 deep."""
_LAST_NS = 1 << 62
_MOST_FLOWS = 20_000
"""Arrows from forward to backward that are looked at: they tell a handful of threads apart."""


class DeviceRow(Struct, gc=False):
    """A device event before its launch is known."""

    name: str
    category: str
    start_ns: int
    duration_ns: int
    device: int | None
    stream: int | None
    correlation: int | None
    external_id: int | None = None
    bytes: int | None = None


class TraceBuilder:
    """Takes rows in any order, and builds a trace of them.

    Times are nanoseconds. Threads are whatever tells them apart.
    """

    def __init__(self, log: CallLog | None = None) -> None:
        self.log = log
        self.threads = Numbers()
        self.frames = Spans()
        self.ranges = Spans()
        self.device: list[DeviceRow] = []
        self.notes: list[str] = []
        self.profiler_steps: list[tuple[int, int]] = []
        self._names = Numbers()
        self._name, self._thread = array("i"), array("i")
        self._start_ns, self._end_ns = array("q"), array("q")
        self._args: _TextArgs | _PackedArgs = _TextArgs()
        self._launches = (array("q"), array("q"), array("i"))
        self._flows: dict[Any, dict[str, tuple[int, int]]] = {}

    def __len__(self) -> int:
        """How many operators and device events there are so far."""
        return len(self._name) + len(self.device) + len(self.frames) + len(self.ranges)

    @property
    def has_marks(self) -> bool:
        """Whether a recorder of stridewise's left its marks among the operators."""
        return any(name.startswith(MARK) for name in self._names)

    def pack(self) -> None:
        """Keep arguments in little space from now on, for a trace whose text is not kept."""
        if isinstance(self._args, _TextArgs):
            packed = _PackedArgs()
            packed.extend(self._args.texts)
            self._args = packed

    # -- rows -------------------------------------------------------------------------------------------------------

    def op(self, name: str, start_ns: int, end_ns: int, thread: Hashable, args: Raw | bytes = b"") -> None:
        """An operator; `args` is JSON as the profiler writes it, such as `{"Input Dims": [[2, 3]]}`."""
        self.ops([name], array("q", [start_ns]), array("q", [end_ns]), [self.threads[thread]], [args])

    def ops(
        self,
        names: Iterable[str],
        start_ns: Iterable[int],
        end_ns: Iterable[int],
        threads: Iterable[int],
        args: Iterable[Raw | bytes],
    ) -> None:
        """Many operators, with threads as the numbers that `self.threads` gives."""
        numbers = self._names
        self._name.extend(array("i", [numbers[name] for name in names]))
        self._start_ns.extend(start_ns)
        self._end_ns.extend(end_ns)
        self._thread.extend(array("i", threads))
        self._args.extend(args)

    def launch(self, start_ns: int, thread: int, correlation: int) -> None:
        """A call of the device's runtime, which launched the device events of the same correlation."""
        correlations, starts, threads = self._launches
        correlations.append(correlation)
        starts.append(start_ns)
        threads.append(thread)

    def flow(self, number: Any, phase: str, thread: int, at_ns: int) -> None:
        """One end of an arrow from a forward operator (`s`) to the node that it made (`f`)."""
        if number in self._flows or len(self._flows) < _MOST_FLOWS:
            self._flows.setdefault(number, {})[phase] = (thread, at_ns)

    # -- the trace --------------------------------------------------------------------------------------------------

    def build(self, base_ns: int = 0, rank: int | None = None) -> Trace:
        """The trace of all rows so far."""
        end_of_log = self._end_of_log()
        ops = self._sorted_ops(end_of_log)
        self._nest(ops)
        events = self._device_events(ops, end_of_log)
        start = min(ops.start_ns, default=None)
        if start is None:  # a trace of kernels alone
            start = min((event.start_ns for event in events), default=0)
        end = max(max(ops.end_ns, default=0), max((event.start_ns + event.duration_ns for event in events), default=0))
        log = self.log
        found = find_steps(ops, log, self.profiler_steps, start, end)
        return Trace(
            ops=ops,
            device_events=events,
            frames=self.frames,
            ranges=self.ranges,
            steps=found.steps,
            steps_found=found.told_apart,
            whole=found.whole,
            log=log,
            forward_threads=self._forward_threads(ops),
            base_ns=base_ns,
            start_ns=start,
            end_ns=end,
            environment=dict(log.environment) if log else {},
            notes=[*(log.notes if log else []), *self.notes, *self._args.notes, *found.notes],
            rank=rank,
            library=onednn.read(log.library_log).records if log and log.library_log else (),
        )

    def _end_of_log(self) -> int:
        """Where the recorder's own end mark is: what the profiler saw after it is not part of the recording."""
        number = self._names.get(END_MARK)
        if number is None:
            return _LAST_NS
        return int(integers(self._start_ns)[integers(self._name) == number].min())

    def _sorted_ops(self, end_of_log: int) -> Ops:
        columns = (self._name, self._start_ns, self._end_ns, self._thread)
        order = order_of(self._thread, self._start_ns, self._end_ns)
        apart = self._apart()
        if end_of_log < _LAST_NS or apart:
            order = np.arange(len(self._name)) if order is None else order
            order = order[integers(self._start_ns)[order] <= end_of_log]
            left_out = np.isin(integers(self._thread)[order], apart)
            if left_out.any():
                self.notes.append(LEFT_OUT)
            order = order[~left_out]
        if order is not None:
            columns = tuple(taken(values, order) for values in columns)  # type: ignore[assignment]
            self._args.reorder(order.tolist())
        return Ops(list(self._names), *columns, self._args)

    def _apart(self) -> list[int]:
        """The threads whose work is no part of the recording."""
        wanted = set(self.log.apart) if self.log is not None else set()
        return [number for key, number in self.threads.items() if isinstance(key, tuple) and key[-1] in wanted]

    def _nest(self, ops: Ops) -> None:
        parent, levels = nest(ops.thread, ops.start_ns, ops.end_ns, DEEPEST_OP)
        ops.parent = column(parent, "i")
        calls = {row.index: position for position, row in enumerate(self.log.calls)} if self.log else {}
        module_calls = {row.index: position for position, row in enumerate(self.log.module_calls)} if self.log else {}
        marks = [_marked(name, calls, module_calls) for name in ops.names]
        if not any(marks):
            return
        own_call, own_module, is_node = np.array([mark or (-1, -1, False) for mark in marks]).T
        names = integers(ops.name)
        # One row more than there are operators: the parent of those without one, as -1 indexes the last.
        call, node, module = (np.full(len(ops) + 1, -1, np.int64) for _ in range(3))
        for level in levels:
            name, above = names[level], parent[level]
            begins = is_node[name] > 0
            call[level] = np.where(begins, -1, np.where(own_call[name] >= 0, own_call[name], call[above]))
            module[level] = np.where(begins, -1, np.where(own_module[name] >= 0, own_module[name], module[above]))
            node[level] = np.where(begins, level, node[above])
        ops.call, ops.node, ops.module_call = (column(values[:-1], "i") for values in (call, node, module))

    def _device_events(self, ops: Ops, end_of_log: int) -> list[DeviceEvent]:
        correlation, start_ns = (integers(values) for values in self._launches[:2])
        kept = np.flatnonzero(start_ns <= end_of_log)
        order = kept[np.lexsort((start_ns[kept], correlation[kept]))]
        launched: dict[int, list[int]] = defaultdict(list)
        for number, position in zip(correlation[order].tolist(), order.tolist(), strict=True):
            launched[number].append(position)
        starts, threads = self._launches[1], self._launches[2]
        by_external_id: dict[int, int] | None = None
        events = []
        for row in sorted(self.device, key=lambda row: (row.start_ns, row.duration_ns, row.name)):
            at = -1
            for position in launched.get(row.correlation, ()) if row.correlation is not None else ():
                if at < 0 or starts[position] <= row.start_ns:  # of several launches the last before it ran
                    at = position
            op = ops.innermost(threads[at], starts[at]) if at >= 0 else -1
            if op < 0 and row.external_id:
                if by_external_id is None:
                    by_external_id = {
                        number: index
                        for index in range(len(ops))
                        if (number := self._args[index].external_id) is not None
                    }
                op = by_external_id.get(row.external_id, -1)
            # One that says which launch was its own, and that is not there, was launched before the recording.
            launched_ns = None if row.correlation is not None else row.start_ns
            if at >= 0 or op >= 0:
                launched_ns = starts[at] if at >= 0 else ops.start_ns[op]
            events.append(
                DeviceEvent(
                    name=row.name,
                    category=row.category,
                    start_ns=row.start_ns,
                    duration_ns=row.duration_ns,
                    device=row.device,
                    stream=row.stream,
                    op=op,
                    thread=threads[at] if at >= 0 else -1,
                    launched_ns=launched_ns,
                    bytes=row.bytes,
                )
            )
        if all(event.launched_ns is None for event in events):  # a trace of kernels alone: each is where it ran
            events = [msgspec.structs.replace(event, launched_ns=event.start_ns) for event in events]
        return events

    def _forward_threads(self, ops: Ops) -> dict[int, int]:
        """Sequence numbers collide between threads; the arrows tell which thread a `Fwd thread id` means."""
        seen: dict[int, Counter[int]] = {}
        for ends in self._flows.values():
            if "s" in ends and "f" in ends:
                node = ops.starting_at(*ends["f"])
                if node >= 0 and (identity := ops.args[node].forward_thread):
                    seen.setdefault(identity, Counter())[ends["s"][0]] += 1
        return {identity: counter.most_common(1)[0][0] for identity, counter in seen.items()}


def _marked(name: str, calls: dict[int, int], module_calls: dict[int, int]) -> tuple[int, int, bool] | None:
    """What a name makes of the operators in it: the call, the module call, and whether it is a backward node."""
    if name.startswith(NODE):
        return -1, -1, True
    if name.startswith(MODULE_MARK):
        return -1, module_calls.get(_number(name, MODULE_MARK), -1), False
    if name.startswith(MARK):
        return calls.get(_number(name, MARK), -1), -1, False
    return None


def _number(name: str, prefix: str) -> int:
    digits = name[len(prefix) :]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


class _TextArgs:
    """Arguments as they stand in the trace's text, which they keep alive; decoded when asked for."""

    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.texts: list[Raw | bytes] = []

    def __getitem__(self, index: int) -> OpArgs:
        return decode_args(self.texts[index])

    def extend(self, texts: Iterable[Raw | bytes]) -> None:
        self.texts.extend(texts)

    def reorder(self, order: list[int]) -> None:
        texts = self.texts
        self.texts = [texts[index] for index in order]

    def numbers(self) -> Iterator[tuple[int, int, int | None]]:
        """Position, sequence number and forward thread of each operator that has a sequence number."""
        for index, text in enumerate(self.texts):
            if b'"Sequence number"' in bytes(text):
                args = decode_args(text)
                if args.sequence is not None:
                    yield index, args.sequence, args.forward_thread

    def distinct(self) -> tuple[list[OpArgs], Any]:
        """The different arguments without their numbers, and which each operator has."""
        text = b"[%s]" % b",".join([text or b"{}" for text in self.texts])
        try:
            rows = msgspec.json.decode(text, type=list[_Inputs])
        except _UNREADABLE:  # one of them is
            packed = _PackedArgs()
            packed.extend(self.texts)
            return packed.distinct()
        numbers = Numbers()
        which = [numbers[bytes(row.dims), bytes(row.strides), bytes(row.types), bytes(row.old_dims)] for row in rows]
        names = (*_NAMES[:3], _NAMES[4])
        return [decode_args(_object(zip(names, texts, strict=True))) for texts in numbers], np.array(which, np.int64)


class _Inputs(Struct, gc=False):
    """What is the same for many operators."""

    dims: Raw = msgspec.field(default=Raw(b""), name="Input Dims")
    strides: Raw = msgspec.field(default=Raw(b""), name="Input Strides")
    types: Raw = msgspec.field(default=Raw(b""), name="Input type")
    old_dims: Raw = msgspec.field(default=Raw(b""), name="Input dims")


class _Ids(Struct, gc=False):
    external_id: Raw = msgspec.field(default=Raw(b""), name="External id")
    sequence: Raw = msgspec.field(default=Raw(b""), name="Sequence number")
    forward_thread: Raw = msgspec.field(default=Raw(b""), name="Fwd thread id")
    dims: Raw = msgspec.field(default=Raw(b""), name="Input Dims")
    strides: Raw = msgspec.field(default=Raw(b""), name="Input Strides")
    types: Raw = msgspec.field(default=Raw(b""), name="Input type")
    concrete: Raw = msgspec.field(default=Raw(b""), name="Concrete Inputs")
    old_dims: Raw = msgspec.field(default=Raw(b""), name="Input dims")
    call_stack: Raw = msgspec.field(default=Raw(b""), name="Call stack")


_NAMES = (b"Input Dims", b"Input Strides", b"Input type", b"Concrete Inputs", b"Input dims", b"Call stack")
_ids_decoder = msgspec.json.Decoder(_Ids)
_NONE = -1
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _PackedArgs:
    """Arguments in 28 bytes an operator: those that only differ in their numbers share the rest."""

    MOST = 400_000
    """Different ones that are kept; programs have a few hundred a step."""

    def __init__(self) -> None:
        self._external, self._sequence, self._forward = array("q"), array("q"), array("q")
        self._rest = array("i")
        self._kept = Numbers()
        self._texts: list[tuple[bytes, ...]] = []
        self._dropped = 0

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._dropped:
            return ()
        return (f"Shapes are unknown of operators with more different arguments than are kept: {self._dropped:,}.",)

    def __getitem__(self, index: int) -> OpArgs:
        fields = [
            b'"%s":%d' % (name, values[index])
            for name, values in (
                (b"External id", self._external),
                (b"Sequence number", self._sequence),
                (b"Fwd thread id", self._forward),
            )
            if values[index] != _NONE
        ]
        rest = self._texts[self._rest[index]] if self._rest[index] >= 0 else ()
        return decode_args(_object(zip(_NAMES, rest, strict=False), fields))

    def extend(self, texts: Iterable[Raw | bytes]) -> None:
        for text in texts:
            try:
                ids = _ids_decoder.decode(text) if text else _Ids()
            except _UNREADABLE:
                ids = _Ids()
            self._external.append(_integer(ids.external_id))
            self._sequence.append(_integer(ids.sequence))
            self._forward.append(_integer(ids.forward_thread))
            rest = tuple(
                bytes(part) for part in (ids.dims, ids.strides, ids.types, ids.concrete, ids.old_dims, ids.call_stack)
            )
            self._rest.append(self._number_of(rest))

    def _number_of(self, rest: tuple[bytes, ...]) -> int:
        if not any(rest):
            return _NONE
        if rest not in self._kept and len(self._kept) >= self.MOST:
            self._dropped += 1
            return _NONE
        number = self._kept[rest]
        if number == len(self._texts):
            self._texts.append(rest)
        return number

    def reorder(self, order: list[int]) -> None:
        self._external, self._sequence, self._forward, self._rest = (
            taken(values, order) for values in (self._external, self._sequence, self._forward, self._rest)
        )

    def numbers(self) -> Iterator[tuple[int, int, int | None]]:
        """Position, sequence number and forward thread of each operator that has a sequence number."""
        for index in np.flatnonzero(integers(self._sequence) != _NONE).tolist():
            forward = self._forward[index]
            yield index, self._sequence[index], None if forward == _NONE else forward

    def distinct(self) -> tuple[list[OpArgs], Any]:
        """The different arguments without their numbers, and which each operator has."""
        return [decode_args(_object(zip(_NAMES, rest, strict=True))) for rest in self._texts], integers(self._rest)


def _object(texts: Iterable[tuple[bytes, bytes]], fields: Iterable[bytes] = ()) -> bytes:
    """JSON of these fields, and of more by their names; empty ones are left out."""
    return b"{%s}" % b",".join((*fields, *(b'"%s":%s' % (name, text) for name, text in texts if text)))


def _integer(text: Raw) -> int:
    digits = bytes(text)
    return int(digits) if digits.isdigit() and len(digits) < 19 else _NONE
