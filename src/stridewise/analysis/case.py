"""A recording under analysis: its copies, their streams, and which of them are layout's fault."""

from collections import defaultdict
from functools import cached_property

from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.copies import TracedCopy, count_without_strides, find_copies
from stridewise.analysis.functions import EXPANDS, short_name
from stridewise.analysis.library import library_copies
from stridewise.analysis.lineage import Flow, Origin, Stream, trace_streams, weight_of_gradient
from stridewise.findings import Site
from stridewise.layout import name
from stridewise.recording.model import COMPILED, MARK, CallLog, LayoutRow, Trace

NOWHERE = Site()


def is_channels_last(row: LayoutRow | None) -> bool:
    """Whether a tensor is channels_last and not row-major as well; False where its layout is unknown."""
    return row is not None and name(row.layout) in ("channels_last", "channels_last_3d")


class Case:
    """What the rules look at. Copies are named by their position in `copies`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.log = trace.log or CallLog()
        self.flow = Flow(self.log)
        self._forward_ops = ForwardOps(trace)
        self.copies: list[TracedCopy] = [
            *find_copies(trace, self._forward_ops),
            *library_copies(trace, self._forward_ops),
        ]
        self.streams: list[Stream | None] = trace_streams(self.copies, self.flow)
        self.reasons = [self._reason(copy, stream) for copy, stream in zip(self.copies, self.streams, strict=True)]
        """Why a copy is not taxed; None for one that is."""

        copying, blind = count_without_strides(trace)
        self.measured = not (copying and blind == copying)
        """False for a trace without strides: it may hold any number of copies."""
        self.notes = list(trace.notes)
        if blind:
            self.notes.append(
                f"{'All' if blind == copying else f'{blind:,} of'} {copying:,} copying operators were recorded without "
                "strides, so whether they change a layout is unknown: record with `record_shapes=True` (torch 2.4 or "
                "later), or with `stridewise run`."
            )

        if all(op.name.startswith(MARK) for op in trace.ops):
            self.measured = False
            self.notes.append("Nothing was recorded: no operator ran.")
        compiled = sum(self.function(call) == COMPILED for call in range(len(self.log.calls)))
        if compiled:
            self.notes.append(
                f"{compiled:,} calls of compiled regions: what generated code does inside is not looked into."
            )
        if self.log.library_log is None and any(op.name == "aten::mkldnn_convolution" for op in trace.ops):
            self.notes.append(
                "Convolutions ran in oneDNN, whose own copies no profiler sees: record them with --library-copies."
            )
        if trace.log is None and self.copies:
            self.notes.append("This trace names no source lines: `stridewise run` records them.")
        threads = len({trace.ops[copy.op].thread for copy in self.copies if copy.op >= 0 and not copy.on_device})
        if threads > 1:
            self.notes.append(
                f"Copies ran on {threads} threads: their times add up, so that shares of step time can exceed 100 %."
            )
        unsized = sum(copy.bytes_moved is None for copy in self.copies)
        if unsized:
            self.notes.append(
                f"{unsized:,} copies are of a dtype whose size is not known: their bytes are not counted."
            )

    @property
    def steps(self) -> int:
        """How many steps the figures are divided by."""
        return len(self.trace.steps)

    @cached_property
    def is_channels_last_network(self) -> bool:
        """Whether parameters of the program are channels_last."""
        return any(
            is_channels_last(self.flow.row(position))
            for position, ref in enumerate(self.log.refs)
            if self.log.names.get(ref.object, "").startswith("parameter")
        )

    @cached_property
    def nodes(self) -> dict[int, list[int]]:
        """The nodes of backward, as positions in the trace's operators, that belong to each call."""
        found: dict[int, list[int]] = defaultdict(list)
        for node in self._forward_ops.nodes:
            forward, _ = self._forward_ops.of_node(node)
            if forward is not None and self.trace.ops[forward].call >= 0:
                found[self.trace.ops[forward].call].append(node)
        return found

    @cached_property
    def taxed(self) -> list[int]:
        """The copies of all steps that make up the layout tax."""
        return [
            position
            for position, copy in enumerate(self.copies)
            if copy.step is not None and self.reasons[position] is None
        ]

    def _reason(self, copy: TracedCopy, stream: Stream | None) -> str | None:
        if copy.kind == "library":
            return None
        if copy.change == "reorder":
            weight = weight_of_gradient(copy, self.flow)
            if is_channels_last(weight):
                return "weight gradients in the order of their channels_last weights"
            return None
        if copy.change == "pack":
            return "slices put together in backward" if copy.backward else None
        if copy.change == "unpack":
            return "writes into slices"
        return None if self._is_own_expand(stream) else "spreads inside operators, such as a bias over rows"

    def _is_own_expand(self, stream: Stream | None) -> bool:
        """Whether a stride-0 source comes from an expand of the program's own."""
        if stream is None or stream.ref is None:
            return False
        origin = stream.origin
        if origin.kind == "call":
            return short_name(self.function(origin.call)) in EXPANDS
        if origin.kind == "outside" and self.copies[stream.copy].backward:
            return False  # a gradient that autograd expanded, in a `backward` written in Python
        return origin.kind in ("input", "parameter", "outside")

    # -- what rules ask ---------------------------------------------------------------------------------------------

    def function(self, call: int) -> str:
        """The function that a call called."""
        return self.log.functions[self.log.calls[call].function]

    def site(self, call: int) -> Site:
        """Where a call was made."""
        return (self.trace.site(call) if call >= 0 else None) or NOWHERE

    def site_of_copy(self, position: int) -> Site:
        """Where the payer of a copy is; without a call, the module it ran in."""
        copy = self.copies[position]
        if copy.call >= 0:
            return self.site(copy.call)
        module = self.trace.module_path(self.trace.ops[copy.op].module_call) if copy.op >= 0 else None
        return Site(module=module)

    def origin_site(self, origin: Origin) -> Site:
        """Where a stream was born: a call's site, or a name."""
        if origin.kind in ("call", "inside"):
            return self.site(origin.call)
        return Site(expression=origin.name)

    def payer_name(self, position: int) -> str:
        """What a copy's payer is called: the function, or without a call the operator."""
        copy = self.copies[position]
        return self.function(copy.call) if copy.call >= 0 else copy.top_op

    def operand_row(self, position: int) -> LayoutRow | None:
        """The layout of the tensor that a copy reads, where it is one of the call's inputs."""
        stream = self.streams[position]
        return self.flow.row(stream.ref) if stream is not None and stream.ref is not None else None

    def operand(self, position: int) -> str | None:
        """The operand in words: which input, its sizes and strides."""
        copy, stream = self.copies[position], self.streams[position]
        if copy.call < 0 and copy.op >= 0 and (place := self._input_of_top_op(copy)) is not None:
            return f"input {place}, {_sizes(copy.sizes)} with strides {_sizes(copy.source_strides)}"
        if copy.backward and not copy.direct and (stream is None or stream.operand is None):
            return f"the gradient, {_sizes(copy.sizes)} with strides {_sizes(copy.source_strides)}"
        if stream is None or stream.operand is None:
            return f"{_sizes(copy.sizes)} with strides {_sizes(copy.source_strides)}" if copy.source_strides else None
        row = self.operand_row(position)
        assert row is not None
        return f"input {stream.operand}, {_sizes(row.sizes)} with strides {_sizes(row.strides)}"

    def _input_of_top_op(self, copy: TracedCopy) -> int | None:
        """Which input of the operator a copy reads, for a trace without a call log."""
        op = self.trace.ops[copy.op]
        while op.parent >= 0 and op.name != copy.top_op:
            op = self.trace.ops[op.parent]
        inputs = list(zip(op.args.dims, op.args.strides, strict=False))
        wanted = ([*copy.sizes], [*(copy.source_strides or ())])
        return next((place for place, given in enumerate(inputs) if given == wanted), None)


def _sizes(values: tuple[int, ...] | None) -> str:
    return "(" + ", ".join(map(str, values or ())) + ("," if values and len(values) == 1 else "") + ")"
