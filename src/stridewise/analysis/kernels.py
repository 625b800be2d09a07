"""Which kernels of a device only change layout, why, and what they take."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import takewhile

from msgspec import Struct

from stridewise import layout
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.copies import TracedCopy, step_of
from stridewise.analysis.kernel_names import LayoutPattern, layout_kernel
from stridewise.recording.build import NODE
from stridewise.recording.dtypes import ITEM_SIZES, from_cpp
from stridewise.recording.trace import DeviceEvent, Trace
from stridewise.results import Cause, Change

KERNEL = "kernel"


class _Relayout(Struct, frozen=True):
    """A copy between two tensors of equal sizes."""

    sizes: tuple[int, ...]
    source_strides: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None
    change: Change
    bytes_moved: int | None


class Kernels:
    """The causes of a trace's device events, and the copies that only kernels show."""

    def __init__(self, trace: Trace, patterns: tuple[LayoutPattern, ...] = ()) -> None:
        self.trace = trace
        self._pattern = cache(lambda name: layout_kernel(name, patterns))
        self._generated: dict[int, _Relayout | None] = {}

    def copies(self, forward_ops: ForwardOps) -> list[TracedCopy]:
        """Transposes of vendors' libraries, whose tensors no trace names, and relayouts in generated kernels."""
        starts = [step.start_ns for step in self.trace.steps]
        found = []
        for position, event in enumerate(self.trace.device_events):
            pattern = self._pattern(event.name) if event.category == KERNEL else None
            if pattern is None:
                continue
            if pattern.cause == "transpose":
                library = f"{pattern.vendor} {pattern.makes or 'transpose'}"
                found.append(self._copy(position, forward_ops, starts, library=library))
            elif pattern.cause == "generated" and (relayout := self._relayout(event.op)):
                found.append(self._copy(position, forward_ops, starts, relayout=relayout))
        return found

    def causes(self, copies: Sequence[TracedCopy]) -> list[Cause | None]:
        """Why each device event only changes layout; None for one that computes or that nothing is known of."""
        changing = {copy.op for copy in copies if copy.op >= 0 and copy.change in ("reorder", "pack")}
        judged = {index for index in self.trace.ops.named("aten::copy_") if self._has_strides(index)}
        return [self._cause(event, changing, judged) for event in self.trace.device_events]

    def _cause(self, event: DeviceEvent, changing: Collection[int], judged: Collection[int]) -> Cause | None:
        if event.category != KERNEL:
            return None
        pattern = self._pattern(event.name)
        if pattern is None:
            return None
        if pattern.cause == "transpose":
            return "transpose"
        if pattern.cause == "copy":
            around = list(self.trace.ops.around(event.op))
            if any(op in changing for op in around):
                return "copy"
            return None if any(op in judged for op in around) else "possible"
        if pattern.cause == "generated":
            if self._relayout(event.op):
                return "generated"
            return "possible" if not self._has_strides(event.op) else None
        return "possible"

    def _has_strides(self, op: int) -> bool:
        inputs = list(self.trace.ops.args[op].inputs)[:2] if op >= 0 else []
        return len(inputs) == 2 and all(strides is not None for _, strides, _ in inputs)

    # -- copies -----------------------------------------------------------------------------------------------------

    def _copy(
        self,
        position: int,
        forward_ops: ForwardOps,
        starts: Sequence[int],
        *,
        library: str | None = None,
        relayout: _Relayout | None = None,
    ) -> TracedCopy:
        ops, event = self.trace.ops, self.trace.device_events[position]
        node = ops.node[event.op] if event.op >= 0 else -1
        call = ops.call[event.op] if event.op >= 0 else -1
        inferred = event.op < 0
        if node >= 0 and call < 0:
            forward, inferred = forward_ops.of_node(node)
            call = -1 if forward is None else ops.call[forward]
        return TracedCopy(
            op=event.op,
            top_op=self._payer(event),
            sizes=relayout.sizes if relayout else None,
            source_strides=relayout.source_strides if relayout else None,
            strides=relayout.strides if relayout else None,
            source_dtype=relayout.dtype if relayout else None,
            dtype=relayout.dtype if relayout else None,
            change=relayout.change if relayout else "reorder",
            kind="compiled" if relayout else "library",
            bytes_moved=relayout.bytes_moved if relayout else None,
            bytes_written=None,
            duration_ns=event.duration_ns,
            on_device=True,
            step=step_of(self.trace, starts, event.launched_ns),
            call=call,
            node=node,
            backward=node >= 0,
            direct=node < 0,
            inferred=inferred,
            library=library,
            event=position,
        )

    def _payer(self, event: DeviceEvent) -> str:
        """The outermost operator of ATen that launched a kernel: `aten::conv2d`, in backward `convolution_backward`."""
        ops = self.trace.ops
        names = list(map(ops.text, takewhile(lambda op: not ops.text(op).startswith(NODE), ops.around(event.op))))
        return next((name for name in reversed(names) if name.startswith("aten::")), names[-1] if names else event.name)

    def _relayout(self, op: int) -> _Relayout | None:
        """What a generated kernel does, by the tensors that its launch was given: two of one size, in two orders."""
        if op not in self._generated:
            self._generated[op] = _relayout_of(self.trace.ops.args[op].inputs) if op >= 0 else None
        return self._generated[op]


def _relayout_of(inputs: Iterable[tuple[tuple[int, ...], tuple[int, ...] | None, str]]) -> _Relayout | None:
    """Generated kernels get their output last. One tensor in, one of the same sizes in another order out: a copy."""
    tensors = [(sizes, strides, kind) for sizes, strides, kind in inputs if sizes]
    if len(tensors) != 2:
        return None
    (sizes, source_strides, source_kind), (out_sizes, strides, kind) = tensors
    if sizes != out_sizes or source_strides is None or strides is None or source_kind != kind:
        return None
    change = layout.change(sizes, source_strides, strides)
    if change not in ("reorder", "pack"):
        return None
    dtype = from_cpp(kind) or kind or None
    itemsize = ITEM_SIZES.get(dtype or "")
    moved = layout.bytes_moved(sizes, source_strides, itemsize, strides, itemsize) if itemsize else None
    return _Relayout(sizes, source_strides, strides, dtype, change, moved)
