"""The primitives that oneDNN logged, and the operators that ran them."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from stridewise.analysis.library import CallsOfLines
from stridewise.recording import onednn
from stridewise.recording.dtypes import from_onednn
from stridewise.recording.trace import Trace
from stridewise.results import Family

PRIMITIVES: dict[str, Family] = {
    "convolution": "convolution",
    "deconvolution": "convolution",
    "matmul": "matmul",
    "inner_product": "matmul",
    "batch_normalization": "normalization",
    "layer_normalization": "normalization",
    "group_normalization": "normalization",
    "pooling": "pooling",
}
"""oneDNN's primitives of each family (dnnl_primitive_kind_t)."""

_MEMORY = re.compile(r"(src|wei|dst)[^:_\s]*[:_]([a-z]+\d+(?:_[a-z0-9]+)?)[^:\s]*:[a-z0]*:blocked:([a-zA-Z0-9]+)")


class Primitives:
    """Which primitives ran in an operator, found by the call that printed their lines, or by their time."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.complete = trace.log is not None and trace.log.library_log is not None
        """Nothing that oneDNN ran is missing from it."""
        self._by_call = _by_call(trace) if len(trace.ops) else {}
        self._timed: list[tuple[int, onednn.Primitive | onednn.Reorder]] | None = None

    def of(self, first: int) -> list[onednn.Primitive | onednn.Reorder]:
        """Those that ran in an operator: by its call forward, by time in backward, where there are no calls."""
        ops = self.trace.ops
        if not self.trace.library:
            return []
        if ops.node[first] < 0 and ops.call[first] >= 0:
            return self._by_call.get(ops.call[first], [])
        return [record for _, record in self._between(ops.start_ns[first], ops.end_ns[first])]

    def alone(self) -> Iterator[onednn.Primitive]:
        """Those of a log that has no operators beside it."""
        if not len(self.trace.ops):
            yield from (record for record in self.trace.library if isinstance(record, onednn.Primitive))

    def _between(self, start_ns: int, end_ns: int) -> list[tuple[int, onednn.Primitive | onednn.Reorder]]:
        if self._timed is None:
            base_ns = self.trace.base_ns
            self._timed = sorted(
                (
                    (record.start_ns - base_ns + record.duration_ns // 2, record)
                    for record in self.trace.library
                    if record.start_ns is not None
                ),
                key=lambda pair: pair[0],
            )
        first = bisect_right(self._timed, start_ns, key=lambda pair: pair[0])
        last = bisect_right(self._timed, end_ns, key=lambda pair: pair[0])
        return self._timed[first:last]


def dtype_of(record: onednn.Primitive) -> str | None:
    """The dtype of what a primitive reads."""
    found = _MEMORY.search(record.memory)
    return from_onednn(found[2]) if found else None


def formats_of(record: onednn.Primitive) -> tuple[str, ...]:
    """The formats of source, weights and destination in oneDNN's own words, such as `src acdb`."""
    return tuple(f"{found[1]} {found[3]}" for found in _MEMORY.finditer(record.memory))


def _by_call(trace: Trace) -> dict[int, list[onednn.Primitive | onednn.Reorder]]:
    """What ran in each call that printed its lines."""
    lines = CallsOfLines(trace.log)
    found: dict[int, list[onednn.Primitive | onednn.Reorder]] = defaultdict(list)
    for record in trace.library:
        if (call := lines.call_at(record.offset)) >= 0:
            found[call].append(record)
    return found
