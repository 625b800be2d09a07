"""The one reader of recordings: Chrome traces as torch's profiler writes them, with or without a call log."""

import gc
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from stridewise.errors import InputError
from stridewise.recording.model import (
    END_MARK,
    LOG_KEY,
    MARK,
    MODULE_MARK,
    CallLog,
    DeviceEvent,
    Op,
    Trace,
    decode_log,
)
from stridewise.recording.steps import find_steps

try:
    from isal.igzip import decompress as _decompress
except ImportError:
    from gzip import decompress as _decompress

NODE = "autograd::engine::evaluate_function: "
"""Prefix of the operator that runs one node of the backward graph."""

PUBLIC_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "record_shapes",
    "with_stack",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    LOG_KEY,
)
"""Top-level keys that a saved recording keeps. Others hold host names, file names and environment variables."""

_OPERATOR = frozenset({"cpu_op", "Operator"})
_LAUNCH = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "privateuse1_runtime"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_TORCHS_OWN = ("Optimizer.", "enumerate(DataLoader)")
_PROFILER_STEP = re.compile(r"ProfilerStep#\d+\Z")


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


class _File(Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")
    log: Raw = msgspec.field(default=Raw(b""), name=LOG_KEY)
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")


class _DeviceArgs(Struct, gc=False):
    correlation: int | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")
    device: int | None = None
    stream: int | None = None


_file_decoder = msgspec.json.Decoder(_File)
_device_decoder = msgspec.json.Decoder(_DeviceArgs)


def read_bytes(path: Path) -> bytes:
    """A file's text, unzipped. Raises InputError where it can't be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.", advice="Name a recording or a trace.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder.", advice="Name a recording or a trace in it.") from None
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from None
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        unzipped: bytes = _decompress(content)  # type: ignore[no-untyped-call, unused-ignore]
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(
            f"{path} is gzip that ends too early or is damaged: {error}.", advice="Copy or record it again."
        ) from None
    return unzipped


def read(content: bytes, name: str) -> Trace:
    """Read a trace's text. Raises InputError, which calls it `name`, if it is none."""
    with _collector_off():
        file = _decode(content, name)
        log = _log_of(file, name)
        try:
            return _Builder(file, log).build()
        except OverflowError:
            raise InputError(f"{name} holds times that are no times.") from None


def has_open_annotations(content: bytes) -> bool:
    """Whether an annotation of the program's own was open when the profiler stopped.

    It will close inside the next profile, and then torch writes into the memory of the one before (2.13,
    `onFunctionExit`). The profiler ends such events where its window ends. Those that torch makes close soon.
    """
    with _collector_off():
        events = _decode(content, "recording").events
        end = next((event.ts for event in events if event.name == "Record Window End"), None)
        return end is not None and any(
            event.cat == "user_annotation"
            and event.ts + event.dur >= end - 1
            and not event.name.startswith(_TORCHS_OWN)
            for event in events
        )


def without_private_metadata(content: bytes, name: str) -> bytes:
    """The same trace with no more top-level keys than readers need."""
    try:
        keys = msgspec.json.decode(content, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is no trace: {error}.") from None
    kept = {key: keys[key] for key in PUBLIC_KEYS if key in keys}
    return msgspec.json.encode(kept | {"traceEvents": keys.get("traceEvents", Raw(b"[]"))})


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


def _decode(content: bytes, name: str) -> _File:
    try:
        if content.lstrip()[:1] == b"[":
            return _File(msgspec.json.decode(content, type=list[_Event]))
        return _file_decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{name} is no trace that can be read: {error}.",
            expected="Expected: JSON with `traceEvents`, as `torch.profiler` and stridewise write it.",
        ) from None


def _log_of(file: _File, name: str) -> CallLog | None:
    if not file.log:
        return None
    try:
        log = decode_log(file.log)
        log.check()
    except (ValueError, IndexError) as error:
        raise InputError(f"{name} was not recorded whole: {error}.") from None
    return log


class _Builder:
    """Puts a file's events into the order of a trace: operators nested by time and thread."""

    def __init__(self, file: _File, log: CallLog | None) -> None:
        self.file = file
        self.log = log
        self.threads: dict[tuple[Any, Any], int] = {}
        self.ops: list[Op] = []
        self.launches: list[tuple[int, int, int, Raw]] = []
        self.device: list[_Event] = []
        self.flows: dict[Any, dict[str, tuple[int, int]]] = {}
        self.profiler_steps: list[tuple[int, int]] = []
        self.launch_op: dict[int, int] = {}

    def build(self) -> Trace:
        self.sort_events()
        self.nest()
        start = min((op.start_ns for op in self.ops), default=0)
        end = max((op.end_ns for op in self.ops), default=0)
        device_events = self.device_events()
        end = max([end, *(event.start_ns + event.duration_ns for event in device_events)])
        steps, found, notes = find_steps(self.ops, self.log, self.profiler_steps, start, end)
        return Trace(
            ops=self.ops,
            device_events=device_events,
            steps=steps,
            steps_found=found,
            log=self.log,
            forward_threads=self.forward_threads(),
            base_ns=self.file.base_ns,
            start_ns=start,
            end_ns=end,
            environment=dict(self.log.environment) if self.log else {},
            notes=[*(self.log.notes if self.log else []), *notes],
        )

    def thread(self, event: _Event) -> int:
        return self.threads.setdefault((event.pid, event.tid), len(self.threads))

    def sort_events(self) -> None:
        for event in self.file.events:
            category = event.cat
            if event.ph == "X":
                if category in _OPERATOR:
                    start, end = _times(event)
                    self.ops.append(Op(event.name, start, end, self.thread(event), event.args))
                elif category in _LAUNCH:
                    start, end = _times(event)
                    self.launches.append((self.thread(event), start, end, event.args))
                elif category in _DEVICE:
                    self.device.append(event)
                elif category == "user_annotation" and _PROFILER_STEP.match(event.name):
                    self.profiler_steps.append(_times(event))
            elif category == "fwdbwd":
                self.flows.setdefault(event.id, {})[event.ph] = (self.thread(event), round(event.ts * 1000))
        ends = [op.start_ns for op in self.ops if op.name == END_MARK]
        if ends:
            self.ops = [op for op in self.ops if op.start_ns <= min(ends)]
            self.launches = [launch for launch in self.launches if launch[1] <= min(ends)]
        self.ops.sort(key=lambda op: (op.thread, op.start_ns, -op.end_ns))
        self.launches.sort(key=lambda launch: launch[:2])

    def nest(self) -> None:
        calls = {row.index: position for position, row in enumerate(self.log.calls)} if self.log else {}
        module_calls = {row.index: position for position, row in enumerate(self.log.module_calls)} if self.log else {}
        ops = self.ops
        stack: list[int] = []
        thread = -1
        launches = iter([*self.launches, (len(self.threads) + 1, 0, 0, Raw(b""))])
        launch = next(launches)
        for index, op in enumerate(ops):
            while launch[:2] < (op.thread, op.start_ns):
                self.place_launch(launch, stack, thread)
                launch = next(launches)
            if op.thread != thread:
                stack.clear()
                thread = op.thread
            while stack and ops[stack[-1]].end_ns <= op.start_ns:
                stack.pop()
            if stack:
                parent = ops[stack[-1]]
                op.parent = stack[-1]
                op.call, op.node, op.module_call = parent.call, parent.node, parent.module_call
            name = op.name
            if name.startswith(MARK):
                if name.startswith(MODULE_MARK):
                    op.module_call = module_calls.get(_number(name, MODULE_MARK), op.module_call)
                else:
                    op.call = calls.get(_number(name, MARK), op.call)
            elif name.startswith(NODE):
                op.node, op.call, op.module_call = index, -1, -1
            stack.append(index)
        while launch[0] <= len(self.threads):
            self.place_launch(launch, stack, thread)
            launch = next(launches)

    def place_launch(self, launch: tuple[int, int, int, Raw], stack: list[int], thread: int) -> None:
        """Remember which operator a launch on the device lies in."""
        if launch[0] != thread:
            return
        while stack and self.ops[stack[-1]].end_ns <= launch[1]:
            stack.pop()
        correlation = _device_args(launch[3]).correlation
        if stack and correlation is not None:
            self.launch_op[correlation] = stack[-1]

    def device_events(self) -> list[DeviceEvent]:
        by_external_id: dict[int, int] | None = None
        events = []
        for event in self.device:
            args = _device_args(event.args)
            op = -1 if args.correlation is None else self.launch_op.get(args.correlation, -1)
            if op < 0 and args.external_id:
                if by_external_id is None:
                    by_external_id = {
                        op_args.external_id: index
                        for index, op_args in enumerate(op.args for op in self.ops)
                        if op_args.external_id
                    }
                op = by_external_id.get(args.external_id, -1)
            start, end = _times(event)
            events.append(DeviceEvent(event.name, event.cat, start, end - start, args.device, args.stream, op))
        return events

    def forward_threads(self) -> dict[int, int]:
        """Sequence numbers collide between threads; the arrows tell which thread a `Fwd thread id` means."""
        ends = {flow["f"]: flow["s"] for flow in self.flows.values() if "f" in flow and "s" in flow}
        seen: dict[int, Counter[int]] = {}
        for op in self.ops:
            origin = ends.get((op.thread, op.start_ns))
            if origin is not None and (identity := op.args.forward_thread):
                seen.setdefault(identity, Counter())[origin[0]] += 1
        return {identity: counter.most_common(1)[0][0] for identity, counter in seen.items()}


def _times(event: _Event) -> tuple[int, int]:
    start = round(event.ts * 1000)
    return start, start + round(event.dur * 1000)


def _number(name: str, prefix: str) -> int:
    digits = name[len(prefix) :]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


def _device_args(raw: Raw) -> _DeviceArgs:
    try:
        return _device_decoder.decode(raw) if raw else _DeviceArgs()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _DeviceArgs()
