"""Chrome traces as torch's profiler writes them, of any age, with or without a call log."""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import msgspec
import numpy as np
from msgspec import Raw, Struct

from stridewise.errors import InputError
from stridewise.recording.build import LOG_LOST, DeviceRow, TraceBuilder
from stridewise.recording.model import CallLog, decode_log
from stridewise.recording.nesting import Column, column
from stridewise.recording.pieces import UNREADABLE, Keys, Pieces
from stridewise.recording.text import Text
from stridewise.recording.trace import Trace

_OPERATOR = frozenset({"cpu_op", "Operator", "hpu_op"})
_LAUNCH = frozenset(
    {
        "cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "privateuse1_runtime",
        "privateuse1_driver", "mtia_runtime",
    }
)  # fmt: skip
_DEVICE = {"kernel": "kernel", "gpu_memcpy": "gpu_memcpy", "gpu_memset": "gpu_memset"} | {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"  # until torch 1.12
}  # fmt: skip
_KINDS = {
    **dict.fromkeys(_OPERATOR, "op"),
    **dict.fromkeys(_LAUNCH, "launch"),
    **dict.fromkeys(_DEVICE, "device"),
    "user_annotation": "range",
    "python_function": "frame",
    "fwdbwd": "flow",
    "forward_backward": "flow",
    "": "other",
}
_TORCHS_OWN = ("Optimizer.", "enumerate(DataLoader)")
_PROFILER_STEP = re.compile(r"ProfilerStep#\d+\Z")
_LEGACY_PID = "CPU functions"
"""What traces of `torch.autograd.profiler` call the process; their operators have no category."""
_KEPT = 64_000_000
"""Bytes of text up to which it is kept, for the arguments of operators to be decoded when they are needed."""
_LAST_US = 1 << 52
"""Microseconds that a float still counts one by one, and twice of which is still a number of nanoseconds."""
_LONGEST_NAME = 4096


class _Event(Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    id: int | str | None = None
    args: Raw = Raw(b"")


class _Distributed(Struct):
    rank: int | None = None


class _DeviceArgs(Struct, gc=False):
    correlation: int | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")
    old_external_id: int | None = msgspec.field(default=None, name="external id")
    device: int | None = None
    stream: int | None = None
    bytes: int | None = None


_device_decoder = msgspec.json.Decoder(_DeviceArgs)
_all_device_args = msgspec.json.Decoder(list[_DeviceArgs])


def read(content: bytes, name: str) -> Trace:
    """Read a trace's text. Raises InputError, which calls it `name`, if it is none."""
    return read_text(Text(BytesIO(content), name))


def read_text(text: Text, begun: bytes = b"") -> Trace:
    """Read a trace, of whose text `begun` was read already.

    It is decoded in pieces of 16 MB. Of texts over 64 MB nothing is kept but the columns: some 90 bytes an operator, 50
    a Python frame, 200 a kernel.
    """
    with _collector_off():
        return _Reader(text, begun).read()


def has_open_annotations(content: bytes) -> bool:
    """Whether an annotation of the program's own was open when the profiler stopped.

    It will close inside the next profile, and then torch writes into the memory of the one before (2.13,
    `onFunctionExit`). The profiler ends such events where its window ends. Those that torch makes close soon.
    """
    with _collector_off():
        pieces: Pieces[list[_Event]] = Pieces(Text(BytesIO(content), "recording"), list[_Event])
        events = [event for piece in pieces for event in piece]
        end = next((event.ts for event in events if event.name == "Record Window End"), None)
        return end is not None and any(
            event.cat == "user_annotation"
            and event.ts + event.dur >= end - 1
            and not event.name.startswith(_TORCHS_OWN)
            for event in events
        )


@contextmanager
def _collector_off() -> Iterator[None]:
    """The garbage collector would look at every event again and again: 55 ms become 210 for 10,000 operators."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reader:
    """Reads one text into a builder."""

    def __init__(self, text: Text, begun: bytes = b"") -> None:
        self.name = text.name
        self.pieces: Pieces[list[_Event]] = Pieces(text, list[_Event], begun)
        self.builder = TraceBuilder()
        self.device_names: dict[str, str] = {}

    def read(self) -> Trace:
        try:
            for events in self.pieces:
                self.take(events)
                del events
                if self.pieces.text.total > _KEPT:
                    self.builder.pack()
            self.builder.notes += self.pieces.notes
            self.builder.log = self.log()
            if self.pieces.notes and self.builder.log is None and self.builder.has_marks:  # read as far as it goes
                self.builder.notes.append(LOG_LOST)
            return self.builder.build(self.pieces.keys.base_ns, self.rank())
        except OverflowError:
            raise InputError(f"{self.name} holds times that are no times.") from None

    def log(self) -> CallLog | None:
        if not self.pieces.keys.log:
            return None
        try:
            log = decode_log(self.pieces.keys.log)
            log.check()
        except (ValueError, IndexError) as error:
            raise InputError(f"{self.name} was not recorded whole: {error}.") from None
        return log

    def rank(self) -> int | None:
        return rank_of(self.pieces.keys)

    def take(self, events: list[_Event]) -> None:
        """Hand events to the builder, by what they are."""
        kinds: dict[str, list[_Event]] = {kind: [] for kind in _KINDS.values()}
        buckets = {category: kinds[kind] for category, kind in _KINDS.items()}
        for event in events:
            bucket = buckets.get(event.cat)
            if bucket is not None:
                bucket.append(event)
                if len(event.name) > _LONGEST_NAME:
                    event.name = event.name[:_LONGEST_NAME]
        kinds["op"] += [event for event in kinds["other"] if event.pid == _LEGACY_PID and event.ph == "X"]
        old_annotations = [event for event in kinds["op"] if event.cat == "Operator" and _is_annotation(event.name)]
        if old_annotations:  # until torch 1.12 they are operators like others
            kinds["range"] += old_annotations
            kinds["op"] = [event for event in kinds["op"] if not _is_annotation(event.name)]
        self.take_ops(kinds["op"])
        self.take_spans(kinds["frame"], kinds["range"])
        self.take_launches(kinds["launch"])
        self.take_device(kinds["device"])
        for event in kinds["flow"]:
            self.builder.flow(event.id, event.ph, self.thread(event), round(event.ts * 1000))

    def take_ops(self, events: list[_Event]) -> None:
        names, args = [event.name for event in events], [event.args for event in events]
        self.builder.ops(names, *_times(events), self.thread_numbers(events), args)

    def take_spans(self, frames: list[_Event], ranges: list[_Event]) -> None:
        frames = [event for event in frames if not event.name.startswith("<")]  # what is built in tells no place
        names = [event.name for event in frames]
        self.builder.frames.extend(names, *_times(frames), self.thread_numbers(frames))
        steps = [event for event in ranges if _PROFILER_STEP.match(event.name)]
        self.builder.profiler_steps += zip(*_times(steps), strict=True)
        others = [event for event in ranges if not _PROFILER_STEP.match(event.name)]
        names = [event.name for event in others]
        self.builder.ranges.extend(names, *_times(others), self.thread_numbers(others))

    def take_launches(self, events: list[_Event]) -> None:
        start_ns, _ = _times(events)
        for start, thread, args in zip(start_ns, self.thread_numbers(events), _device_args(events), strict=True):
            if args.correlation is not None and abs(args.correlation) < _LAST_US:
                self.builder.launch(start, thread, args.correlation)

    def take_device(self, events: list[_Event]) -> None:
        names = self.device_names
        for event, start, end, args in zip(events, *_times(events), _device_args(events), strict=True):
            self.builder.device.append(
                DeviceRow(
                    name=names.setdefault(event.name, event.name),
                    category=_DEVICE[event.cat],
                    start_ns=start,
                    duration_ns=end - start,
                    device=args.device,
                    stream=args.stream,
                    correlation=args.correlation,
                    external_id=args.external_id or args.old_external_id,
                    bytes=args.bytes,
                )
            )

    def thread(self, event: _Event) -> int:
        return self.builder.threads[event.pid, event.tid]

    def thread_numbers(self, events: list[_Event]) -> list[int]:
        threads = self.builder.threads
        return [threads[event.pid, event.tid] for event in events]


def rank_of(keys: Keys) -> int | None:
    """The rank of a process in its job, if its trace tells."""
    try:
        return msgspec.json.decode(keys.distributed, type=_Distributed).rank
    except UNREADABLE:
        return None


def _is_annotation(name: str) -> bool:
    return name.startswith(_TORCHS_OWN) or _PROFILER_STEP.match(name) is not None


def _times(events: list[_Event]) -> tuple[Column, Column]:
    """Starts and ends in nanoseconds. Raises OverflowError for what can't be one."""
    start_us = np.array([event.ts for event in events], np.float64)
    duration_us = np.array([event.dur for event in events], np.float64)
    if not (np.abs(start_us) < _LAST_US).all() or not (np.abs(duration_us) < _LAST_US).all():
        raise OverflowError
    start_ns = np.rint(start_us * 1000)
    duration_ns = np.rint(np.maximum(duration_us, 0) * 1000)
    return column(start_ns, "q"), column(start_ns.astype(np.int64) + duration_ns.astype(np.int64), "q")


def _device_args(events: list[_Event]) -> list[_DeviceArgs]:
    """What runtime calls and device events say, decoded together; one by one where one of them is no JSON object."""
    try:
        return _all_device_args.decode(b"[%s]" % b",".join([event.args or b"{}" for event in events]))
    except UNREADABLE:
        return [_some_device_args(event.args) for event in events]


def _some_device_args(raw: Raw) -> _DeviceArgs:
    try:
        return _device_decoder.decode(raw) if raw else _DeviceArgs()
    except UNREADABLE:
        return _DeviceArgs()
