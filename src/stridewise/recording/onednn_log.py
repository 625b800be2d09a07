"""Logs of oneDNN's verbose mode, alone or mixed with whatever else a program printed, as traces without operators.

A log names primitives and layouts, but no calls and no source lines. With `ONEDNN_VERBOSE_TIMESTAMP=1` its lines say
when they ran; without, only for how long.
"""

import re
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from stridewise.errors import InputError
from stridewise.recording import onednn
from stridewise.recording.build import TraceBuilder
from stridewise.recording.nesting import Numbers
from stridewise.recording.text import Text
from stridewise.recording.trace import Step, Trace

_READ = 4_000_000
_AT_LINE_START = re.compile(rb"^(?:onednn|dnnl|mkldnn)_verbose,", re.MULTILINE)
_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[{\]])")
_LAST_NS = 1 << 62
_NONE = -1


def is_log(begun: bytes) -> bool:
    """Whether a text that begins so is a log.

    A recording in JSON may hold such lines too, but within a string, where no line can begin.
    """
    if _JSON.match(begun):
        return _AT_LINE_START.search(begun) is not None
    return onednn.MARKER.search(begun) is not None


class Runs(Sequence[onednn.Primitive | onednn.Reorder]):
    """Primitives that ran: 28 bytes each, since many differ only in their times. A record is made when asked for."""

    def __init__(self) -> None:
        self._kinds = Numbers()
        self._records: list[onednn.Primitive | onednn.Reorder] = []
        self._kind = array("i")
        self.duration_ns, self.start_ns, self._offset = array("q"), array("q"), array("q")

    def append(self, record: onednn.Primitive | onednn.Reorder) -> None:
        """One more."""
        kind = msgspec.structs.replace(record, duration_ns=0, start_ns=None, offset=0)
        number = self._kinds[kind]
        if number == len(self._records):
            self._records.append(kind)
        self._kind.append(number)
        self.duration_ns.append(record.duration_ns)
        self.start_ns.append(_NONE if record.start_ns is None else record.start_ns)
        self._offset.append(record.offset)

    def lay_end_to_end(self) -> None:
        """Give records without times of day the times that they would have, one right after the other from 0 on."""
        end = 0
        for index, duration in enumerate(self.duration_ns):
            self.start_ns[index] = end
            end += duration

    def __len__(self) -> int:
        return len(self._kind)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        start_ns = self.start_ns[index]
        return msgspec.structs.replace(
            self._records[self._kind[index]],
            duration_ns=self.duration_ns[index],
            start_ns=None if start_ns == _NONE else start_ns,
            offset=self._offset[index],
        )


def read_text(text: Text, begun: bytes = b"") -> Trace:
    """Read a log of which `begun` was read already. Raises InputError if nothing ran according to it.

    All of it is one step, from the start of the first primitive to the end of the last. If they have no times, the step
    is as long as they together, and the trace says that this is not wall time.
    """
    reader, runs = onednn.Reader(), Runs()
    try:
        _read_lines(text, begun, reader, runs)
        if not len(runs):
            raise InputError(
                f"{text.name} is a log of oneDNN, and no primitive ran.",
                advice="Run the program with ONEDNN_VERBOSE=1, and keep all that it prints.",
            )
        timed = min(runs.start_ns) != _NONE
        if not timed:
            runs.lay_end_to_end()
        start_ns = min(runs.start_ns)
        end_ns = max(start + duration for start, duration in zip(runs.start_ns, runs.duration_ns, strict=True))
        if end_ns >= _LAST_NS:
            raise OverflowError
    except OverflowError:
        raise InputError(f"{text.name} holds times that are no times.") from None
    builder = TraceBuilder()
    if not timed:
        builder.notes.append(
            "The log has no times of day: shares are of the time in oneDNN. ONEDNN_VERBOSE_TIMESTAMP=1 adds them."
        )
    if reader.skipped:
        builder.notes.append(f"Lines of oneDNN that were cut off or garbled, and are not counted: {reader.skipped:,}.")
    if text.broken:
        builder.notes.append(f"The file is incomplete, {text.broken}: read as far as it goes.")
    trace = builder.build(base_ns=start_ns)
    trace.end_ns = max(end_ns - start_ns, 1)
    trace.steps = [Step(0, trace.end_ns)]
    trace.library = runs
    trace.has_wall_time = timed
    trace.format = "onednn"
    return trace


def _read_lines(text: Text, begun: bytes, reader: onednn.Reader, runs: Runs) -> None:
    rest, offset = begun, 0
    while True:
        more = text.read(_READ)
        end = rest.rfind(b"\n") + 1 if more else len(rest)
        if not end and len(rest) > _READ:  # a line so long is none of oneDNN's
            end = len(rest)
        for record in reader.read(rest[:end], offset):
            runs.append(record)
        offset += end
        rest = rest[end:] + more
        if not more:
            return
