"""A recording as it is read: operators, device events and named spans, all on one clock. No torch.

Operators and spans are columns, since a trace may hold millions: about 60 bytes an operator and 24 a span.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeGuard

import msgspec
import numpy as np
from msgspec import Raw, Struct

from stridewise.findings import Site
from stridewise.recording import onednn
from stridewise.recording.model import CallLog
from stridewise.recording.nesting import Column, Numbers, column, integers, nest, order_of, taken


class OpArgs(Struct, frozen=True, gc=False):
    """What the profiler wrote about an operator. Lists are empty where it was recorded without shapes."""

    external_id: int | None = msgspec.field(default=None, name="External id")
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: int | None = msgspec.field(default=None, name="Fwd thread id")
    dims: list[Any] = msgspec.field(default_factory=list, name="Input Dims")
    strides: list[Any] = msgspec.field(default_factory=list, name="Input Strides")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    concrete: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")
    old_dims: list[Any] = msgspec.field(default_factory=list, name="Input dims")
    """As torch 1.8 spelt them."""
    call_stack: str = msgspec.field(default="", name="Call stack")
    """`with_stack` of torch before 1.12: frames from the innermost on, `file(line): function;…`."""

    @property
    def inputs(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | None, str]]:
        """Sizes, strides (None where they were not recorded) and C++ dtype of each argument; scalars have no sizes."""
        for place, sizes in enumerate(self.dims or self.old_dims):
            strides = self.strides[place] if place < len(self.strides) else None
            kind = self.types[place] if place < len(self.types) else ""
            if not is_sizes(sizes):
                yield (), None, kind
            elif is_sizes(strides) and len(strides) == len(sizes):
                yield tuple(sizes), tuple(strides), kind
            else:
                yield tuple(sizes), None, kind


def is_sizes(value: Any) -> TypeGuard[list[int]]:
    """Whether a trace's value can be sizes or strides: of a tensor that could exist."""
    return isinstance(value, list) and all(type(entry) is int and 0 <= entry < 1 << 48 for entry in value)


class Args(Protocol):
    """The arguments of operators, by position."""

    def __getitem__(self, index: int) -> OpArgs: ...

    def numbers(self) -> Iterator[tuple[int, int, int | None]]:
        """Position, sequence number and forward thread of each operator that has a sequence number."""

    def distinct(self) -> tuple[list[OpArgs], Any]:
        """The different arguments without their numbers, and as numpy's integers which each operator has; -1: none."""


class Op(Struct, frozen=True, gc=False):
    """One operator, or one of the recorder's marks. Indices are positions in `Trace.ops`; -1: none."""

    name: str
    start_ns: int
    end_ns: int
    thread: int
    parent: int
    call: int
    """The innermost logged call around it, not looking out beyond `node`."""
    node: int
    """The innermost `autograd::engine::evaluate_function` around it."""
    module_call: int


class Ops(Sequence[Op]):
    """The operators and the recorder's marks, by thread and start. A row is made when it is asked for."""

    def __init__(
        self, names: Sequence[str], name: Column, start_ns: Column, end_ns: Column, thread: Column, args: Args
    ) -> None:
        self.names = names
        """The distinct names; `name` says which."""
        self.name = name
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.thread = thread
        self.parent = self.call = self.node = self.module_call = array("i", [-1]) * len(name)
        self.args = args
        self._numbers = {text: number for number, text in enumerate(names)}
        self._stretches: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.name)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return Op(
            self.names[self.name[index]],
            self.start_ns[index],
            self.end_ns[index],
            self.thread[index],
            self.parent[index],
            self.call[index],
            self.node[index],
            self.module_call[index],
        )

    def text(self, index: int) -> str:
        """An operator's name."""
        return self.names[self.name[index]]

    def named(self, *names: str) -> list[int]:
        """The operators with one of these names."""
        return self._with([self._numbers[name] for name in names if name in self._numbers])

    def starting(self, *prefixes: str) -> list[int]:
        """The operators whose names begin so."""
        return self._with([number for number, text in enumerate(self.names) if text.startswith(prefixes)])

    def around(self, index: int) -> Iterator[int]:
        """An operator and those that it lies in, from the inside out."""
        while index >= 0:
            yield index
            index = self.parent[index]

    def innermost(self, thread: int, at_ns: int) -> int:
        """The innermost operator of a thread that runs at a moment; -1: none."""
        first, last = self._stretch(thread)
        index = bisect_right(self.start_ns, at_ns, first, last) - 1
        # One without a length does not end before it starts.
        while index >= first and self.end_ns[index] <= at_ns and self.start_ns[index] < at_ns:
            index = self.parent[index]
        return index if index >= first else -1

    def starting_at(self, thread: int, at_ns: int) -> int:
        """The last operator of a thread that starts at a moment; -1: none."""
        first, last = self._stretch(thread)
        index = bisect_right(self.start_ns, at_ns, first, last) - 1
        return index if index >= first and self.start_ns[index] == at_ns else -1

    def _with(self, numbers: list[int]) -> list[int]:
        if not numbers:
            return []
        wanted = np.zeros(len(self.names), bool)
        wanted[numbers] = True
        found: list[int] = np.flatnonzero(wanted[integers(self.name)]).tolist()
        return found

    def _stretch(self, thread: int) -> tuple[int, int]:
        if thread not in self._stretches:
            self._stretches[thread] = (bisect_left(self.thread, thread), bisect_right(self.thread, thread))
        return self._stretches[thread]


class Spans:
    """Named stretches of time that nest on threads: Python frames, or annotations."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._names: list[str] = []
        self._name, self._thread = array("i"), array("i")
        self._start_ns, self._end_ns = array("q"), array("q")
        self._parent: Column | None = None
        self._stretches: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._name)

    @property
    def names(self) -> Iterable[str]:
        """The different names that there are."""
        return self._numbers.keys()

    def extend(
        self, names: Iterable[str], start_ns: Iterable[int], end_ns: Iterable[int], threads: Iterable[int]
    ) -> None:
        """More spans; they may come in any order."""
        numbers = self._numbers
        self._name.extend(array("i", [numbers[name] for name in names]))
        self._thread.extend(array("i", threads))
        self._start_ns.extend(start_ns)
        self._end_ns.extend(end_ns)
        self._parent = None

    def around(self, thread: int, at_ns: int) -> Iterator[str]:
        """The names of the spans that a moment on a thread lies in, from the inside out."""
        index = self.innermost(thread, at_ns)
        while index >= 0:
            if self._end_ns[index] > at_ns:
                yield self.text(index)
            index = self.parent(index)

    def innermost(self, thread: int, at_ns: int) -> int:
        """The innermost span around a moment on a thread; -1: none."""
        parent = self._nested()
        if thread not in self._stretches:
            self._stretches[thread] = (bisect_left(self._thread, thread), bisect_right(self._thread, thread))
        first, last = self._stretches[thread]
        index = bisect_right(self._start_ns, at_ns, first, last) - 1
        if index < first:
            return -1
        while index >= 0 and self._end_ns[index] <= at_ns:
            index = parent[index]
        return index

    def start_ns(self, index: int) -> int:
        """When a span begins."""
        return self._start_ns[index]

    def text(self, index: int) -> str:
        """A span's name."""
        return self._names[self._name[index]]

    def parent(self, index: int) -> int:
        """The span that one lies in; -1: none."""
        return self._nested()[index]

    def _nested(self) -> Column:
        """Who lies in whom: found when it is first asked for, since many traces' spans never are."""
        if self._parent is None:
            order = order_of(self._thread, self._start_ns, self._end_ns)
            if order is not None:
                self._name, self._thread = taken(self._name, order), taken(self._thread, order)
                self._start_ns, self._end_ns = taken(self._start_ns, order), taken(self._end_ns, order)
            self._parent = column(nest(self._thread, self._start_ns, self._end_ns)[0], "i")
            self._names = list(self._numbers)
            self._stretches = {}
        return self._parent


class DeviceEvent(Struct, frozen=True, gc=False):
    """A kernel, memory copy or memory set on a device."""

    name: str
    category: str
    """`kernel`, `gpu_memcpy` or `gpu_memset`."""
    start_ns: int
    duration_ns: int
    device: int | None
    stream: int | None
    op: int
    """The innermost operator that launched it; -1: none was recorded."""
    thread: int = -1
    """The thread that launched it; -1 where no launch was recorded."""
    launched_ns: int | None = None
    """None for one that was launched before the recording, or by a call that it lacks: it is of no step."""
    bytes: int | None = None
    """How many a memory copy moved."""


Format = Literal["profiler", "nsys", "onednn"]


class Step(Struct, frozen=True):
    """A half-open stretch of time, on every thread."""

    start_ns: int
    end_ns: int


class Trace(Struct):
    """A recording, read."""

    ops: Ops
    device_events: list[DeviceEvent]
    frames: Spans
    """Python functions, named `file(line): function` or `nn.Module: Linear_0`."""
    ranges: Spans
    """Annotations of the program: `record_function`, NVTX ranges."""
    steps: list[Step]
    steps_found: bool
    log: CallLog | None
    forward_threads: dict[int, int]
    """From the profiler's `Fwd thread id` to the number of the thread, learnt from the arrows it draws."""
    base_ns: int
    """What to add to the trace's times to get nanoseconds of the epoch."""
    start_ns: int
    end_ns: int
    environment: dict[str, str]
    notes: list[str]
    rank: int | None = None
    library: Sequence[onednn.Primitive | onednn.Reorder] = ()
    """What ran inside oneDNN, if its log was kept: their starts are nanoseconds of the epoch."""
    format: Format = "profiler"
    """Whose it is: of torch's profiler, of Nsight Systems, or oneDNN's log."""
    has_wall_time: bool = True
    """False where only durations are known: the trace's times are then those laid end to end."""
    whole: bool = True
    """False: the recording ended before its one step, or what counts as one, was over."""

    def site(self, call: int) -> Site | None:
        """Where a call was made, None where no frame of the program's own was on the stack."""
        log = self.log
        assert log is not None
        row = log.calls[call]
        module = self.module_path(row.module_call)
        via = _via(log, row.via)
        if row.site < 0:
            return Site(module=module, via=via) if module or via else None
        at = log.sites[row.site]
        return Site(
            file=at.file,
            line=at.line,
            column=at.column,
            end_line=at.end_line,
            end_column=at.end_column,
            function=at.function,
            module=module,
            expression=at.expression,
            via=via,
            text=at.text,
        )

    def module_path(self, module_call: int) -> str | None:
        """Dotted path of the module that a module call ran; None outside modules."""
        if module_call < 0 or self.log is None:
            return None
        path, kind = self.log.modules[self.log.module_calls[module_call].module]
        return path or kind


def _via(log: CallLog, index: int) -> str | None:
    if index < 0:
        return None
    at = log.sites[index]
    return f"{at.file}:{at.line} in {at.function}"


class _Shapes(Struct, gc=False):
    """The part of `OpArgs` that is of use without its numbers."""

    dims: list[Any] = msgspec.field(default_factory=list, name="Input Dims")
    strides: list[Any] = msgspec.field(default_factory=list, name="Input Strides")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    concrete: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")


_decoder = msgspec.json.Decoder(OpArgs)
_shapes_decoder = msgspec.json.Decoder(_Shapes)
_NO_ARGS = OpArgs()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_args(text: Raw | bytes) -> OpArgs:
    """An operator's arguments; none where some profiler writes other types under these names."""
    try:
        return _decoder.decode(text) if text else _NO_ARGS
    except _UNREADABLE:
        pass
    try:
        shapes = _shapes_decoder.decode(text)
    except _UNREADABLE:
        return _NO_ARGS
    return OpArgs(dims=shapes.dims, strides=shapes.strides, types=shapes.types, concrete=shapes.concrete)
