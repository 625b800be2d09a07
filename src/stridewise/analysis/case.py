"""A recording under analysis: its copies, their streams, and which of them are layout's fault."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import msgspec

from stridewise.analysis.anyway import is_made_anyway, is_of_contiguous_operands
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.converted import is_of_own_result, role_of
from stridewise.analysis.copies import (
    TracedCopy,
    call_marks,
    count_without_strides,
    find_copies,
    find_transfers,
    outermost,
    step_of,
    top_op,
)
from stridewise.analysis.functions import EXPANDS, short_name
from stridewise.analysis.gradients import Gradients
from stridewise.analysis.kernel_names import LayoutPattern
from stridewise.analysis.kernels import KERNEL, Kernels
from stridewise.analysis.library import library_copies
from stridewise.analysis.lineage import Flow, Origin, Stream, trace_streams, weight_of_gradient
from stridewise.analysis.paths import Execution, find_executions, find_suspects
from stridewise.analysis.places import Places
from stridewise.analysis.source_tree import SourceTree
from stridewise.analysis.views import Views
from stridewise.findings import Site
from stridewise.layout import Layout, name
from stridewise.recording.model import MARK, SCRIPTED, CallLog, LayoutRow
from stridewise.recording.trace import DeviceEvent, Trace
from stridewise.results import Cause, Kind

NOWHERE = Site()
_COPYING = frozenset({"aten::copy_", "aten::clone", "aten::contiguous", "aten::to", "aten::_to_copy", "aten::reshape"})


def is_channels_last(row: LayoutRow | None) -> bool:
    """Whether a tensor is channels_last and not row-major as well; False where its layout is unknown."""
    return row is not None and _has_channels_last(row.layout)


def _has_channels_last(shape: Layout) -> bool:
    return name(shape) in ("channels_last", "channels_last_3d")


class Case:
    """What the rules look at. Copies are named by their position in `copies`."""

    def __init__(
        self, trace: Trace, patterns: tuple[LayoutPattern, ...] = (), sources: SourceTree | None = None
    ) -> None:
        self.trace = trace
        self.log = trace.log or CallLog()
        self.flow = Flow(self.log)
        self._forward_ops = ForwardOps(trace)
        self.places = Places(trace, sources)
        self._views = Views(trace)
        kernels = Kernels(trace, patterns)
        self.transfers = find_transfers(trace)
        """The copies between devices that go through a temporary, and what they end in."""
        self.copies: list[TracedCopy] = [
            *find_copies(trace, self._forward_ops, self.transfers),
            *library_copies(trace, self._forward_ops),
            *kernels.copies(self._forward_ops),
        ]
        self.causes: list[Cause | None] = kernels.causes(self.copies)
        """Of each device event: why it only changes layout."""
        self.gradients = Gradients(trace, self._forward_ops, self.flow)
        self.streams: list[Stream | None] = trace_streams(self.copies, self.flow, self.gradients)
        self.reasons = [self._reason(copy, stream) for copy, stream in zip(self.copies, self.streams, strict=True)]
        """Why a copy is not taxed; None for one that is."""

        self.copying, self.blind = count_without_strides(trace)
        """How many copying operators there are, and how many of them were recorded without strides."""
        self.is_empty = all(name.startswith(MARK) for name in trace.ops.names) and not trace.library
        self.measured = not self.is_empty and not (self.copying and self.blind == self.copying)
        """False for a trace without strides: it may hold any number of copies."""
        sees_library = self.log.library_log is not None or not trace.ops.named("aten::mkldnn_convolution")
        self.unseen: tuple[Kind, ...] = () if sees_library else ("library",)
        """Kinds of copies that the recording can't show."""

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

    @property
    def nodes(self) -> dict[int, list[int]]:
        """The nodes of backward, as positions in the trace's operators, that belong to each call."""
        return self.gradients.nodes

    def forward_of_node(self, node: int) -> int:
        """The forward operator that a node of backward belongs to; -1: unknown."""
        forward, _ = self._forward_ops.of_node(node)
        return -1 if forward is None else forward

    @cached_property
    def kernels(self) -> list[int]:
        """The device events that are kernels, by position."""
        return [position for position, event in enumerate(self.trace.device_events) if event.category == KERNEL]

    @cached_property
    def kernels_of_steps(self) -> list[int]:
        """Those of the steps. A kernel belongs to the step that launched it: the device may run it long after."""
        events, starts = self.trace.device_events, [step.start_ns for step in self.trace.steps]
        return [at for at in self.kernels if step_of(self.trace, starts, events[at].launched_ns) is not None]

    @cached_property
    def executions(self) -> list[Execution]:
        """The convolutions, products, normalizations, attentions and poolings, and which implementation ran each."""
        return find_executions(self.trace, self.causes, self._forward_ops)

    @cached_property
    def suspects(self) -> list[Execution]:
        """Those of them that may have missed a faster path."""
        return find_suspects(self.trace, self.causes, self._forward_ops)

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
        if is_made_anyway(self.trace.ops, copy):
            return "made for operands of any layout, contiguous ones too"
        if is_of_contiguous_operands(self, copy):
            return "made for contiguous operands too"
        if copy.change == "reorder":
            weight = weight_of_gradient(copy, self.flow)
            if is_channels_last(weight) or self._is_gradient_of_channels_last_weight(copy):
                return "weight gradients in the order of their channels_last weights"
            return None
        if copy.change == "pack":
            return "slices put together in backward" if copy.backward else None
        if copy.change == "unpack":
            return "writes into slices"
        return None if self._is_own_expand(copy, stream) else "spreads inside operators, such as a bias over rows"

    def _is_gradient_of_channels_last_weight(self, copy: TracedCopy) -> bool:
        """The same in a trace without a call log: the forward convolution had such a weight."""
        forward = self._forward_op(copy) if self.trace.log is None and copy.backward else -1
        if forward < 0:
            return False
        return any(
            sizes == copy.sizes and self.is_channels_last_image((sizes, strides, kind))
            for op in self.trace.ops.around(forward)
            for sizes, strides, kind in islice(self.trace.ops.args[op].inputs, 1, 2)
        )

    def _is_own_expand(self, copy: TracedCopy, stream: Stream | None) -> bool:
        """Whether a stride-0 source comes from an expand of the program's own."""
        if stream is None and (view := self._probable_view(copy)) is not None:
            return short_name(self.trace.ops.text(view)) in EXPANDS
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
        """Where the payer of a copy is; without a call, what Python ran there, or the module."""
        copy = self.copies[position]
        if copy.call >= 0:
            return self.site(copy.call)
        if self.trace.log is None:
            if copy.node < 0:
                return self.places.of_op(copy.op) or NOWHERE
            at = self.places.within_node(copy.op, copy.node)
            return (at if at is not None and at.file else self.places.of_op(self._forward_op(copy))) or NOWHERE
        module = self.trace.module_path(self.trace.ops[copy.op].module_call) if copy.op >= 0 else None
        return Site(module=module)

    def owner(self, position: int) -> int:
        """What tells a copy's payer from others: the call; without one, or in TorchScript, the outermost operator.

        In backward that of forward. Calls count from 0, operators from -2 downwards; -1: nothing is known.
        """
        copy = self.copies[position]
        if copy.call >= 0 and not self.scripted(copy.call):
            return copy.call
        forward = self._forward_op(copy)
        op = outermost(self.trace.ops, forward) if forward >= 0 else self.outermost_op(position)
        return -2 - op if op >= 0 else -1

    def forward_name(self, position: int) -> str | None:
        """The operator of forward whose backward a copy lies in, for a trace without a call log."""
        forward = self._forward_op(self.copies[position])
        return top_op(self.trace.ops, forward) if forward >= 0 else None

    def reads_input(self, position: int) -> bool:
        """Whether a copy in backward reads an input of its forward call, which was saved."""
        copy, stream = self.copies[position], self.streams[position]
        if copy.call >= 0:
            return stream is not None and stream.operand is not None
        forward = self._forward_op(copy)
        return forward >= 0 and self._is_input(outermost(self.trace.ops, forward), copy)

    def reads_gradient(self, position: int) -> bool:
        """Whether a copy in backward reads what a backward operator was given, and not what it made itself."""
        copy = self.copies[position]
        makers = (op for op in self.around(position) if self.trace.ops.text(op) not in _COPYING)
        return any(self._is_input(op, copy) for op in makers if op > copy.node)

    def _is_input(self, op: int, copy: TracedCopy) -> bool:
        if copy.sizes is None or copy.source_strides is None:
            return False
        wanted = _moving(copy.sizes, copy.source_strides)  # of one dimension, kernels make two
        return any(
            strides is not None and _moving(sizes, strides) == wanted
            for sizes, strides, _ in self.trace.ops.args[op].inputs
        )

    def around(self, position: int) -> Iterator[int]:
        """The operators that a copy lies in, from the inside out."""
        return self.trace.ops.around(self.copies[position].op)

    def site_of_op(self, op: int) -> Site:
        """Where an operator was called."""
        call = self.trace.ops.call[op]
        return self.site(call) if call >= 0 else self.places.of_op(op) or NOWHERE

    def outermost_op(self, position: int) -> int:
        """The outermost operator around a copy below a backward node; -1: none."""
        copy = self.copies[position]
        named = (op for op in self.around(position) if self.trace.ops.text(op) == copy.top_op)
        return min(named, default=copy.op)

    def _forward_op(self, copy: TracedCopy) -> int:
        """The forward operator of the node that a copy lies in; -1: unknown."""
        forward, _ = self._forward_ops.of_node(copy.node) if copy.node >= 0 else (None, False)
        return -1 if forward is None else forward

    def is_channels_last_image(self, given: tuple[tuple[int, ...], tuple[int, ...] | None, str]) -> bool:
        """Whether an operator's input is channels_last, as far as its strides were recorded."""
        sizes, strides, _ = given
        return strides is not None and _has_channels_last(Layout(sizes, strides))

    def place_of_event(self, event: DeviceEvent) -> tuple[str | None, Site | None, str | None]:
        """The operator that launched a device event, where that was called, and the annotation around it."""
        op = event.op
        if op < 0:
            launched_ns = event.launched_ns or 0
            at = self.places.at(event.thread, launched_ns)
            return None, at, self.places.range_at(event.thread, launched_ns)
        ops = self.trace.ops
        site = self.trace.site(ops.call[op]) if ops.call[op] >= 0 else self.places.of_op(op)
        return ops.text(op), site, self.places.range_at(ops.thread[op], ops.start_ns[op])

    def probable_origin(self, position: int) -> Site | None:
        """Where a copy's operand probably comes from, in a trace without lineage: the last view with its strides."""
        view = self.probable_view(position)
        if view is None:
            return None
        return msgspec.structs.replace(self.places.of_op(view) or NOWHERE, expression=self.trace.ops.text(view))

    def probable_view(self, position: int) -> int | None:
        """The operator of that view."""
        return self._probable_view(self.copies[position])

    def op_of_call(self, call: int) -> int | None:
        """The recorder's mark of a call, an operator of the trace."""
        return self._marks.get(call)

    def events_of_copy(self, position: int) -> list[DeviceEvent]:
        """The device events that make up a copy; none on the CPU."""
        copy = self.copies[position]
        if copy.event >= 0:
            return [self.trace.device_events[copy.event]]
        return self._copy_events.get(copy.op, []) if copy.on_device else []

    @cached_property
    def _marks(self) -> dict[int, int]:
        return {self.trace.ops.call[index]: index for index in call_marks(self.trace.ops)}

    @cached_property
    def _copy_events(self) -> dict[int, list[DeviceEvent]]:
        found: dict[int, list[DeviceEvent]] = defaultdict(list)
        changing = {copy.op for copy in self.copies if copy.on_device and copy.event < 0}
        for event in self.trace.device_events:
            op = next((op for op in self.trace.ops.around(event.op) if op in changing), None)
            if op is not None:
                found[op].append(event)
        return found

    def _probable_view(self, copy: TracedCopy) -> int | None:
        if self.trace.log is not None or copy.op < 0 or copy.sizes is None or copy.source_strides is None:
            return None
        return self._views.behind(copy.op, copy.sizes, copy.source_strides)

    def origin_site(self, origin: Origin) -> Site:
        """Where a stream was born: a call's site, or a name."""
        if origin.kind in ("call", "inside"):
            return self.site(origin.call)
        return Site(expression=origin.name)

    def payer_name(self, position: int) -> str:
        """What a copy's payer is called: the function; without a call, and inside TorchScript, the operator."""
        copy = self.copies[position]
        return self.function(copy.call) if copy.call >= 0 and not self.scripted(copy.call) else copy.top_op

    def scripted(self, call: int) -> str | None:
        """The scripted or traced function or method that a call ran; None if it ran none."""
        name = self.function(call) if call >= 0 else ""
        return name.removeprefix(SCRIPTED) if name.startswith(SCRIPTED) else None

    def operand_row(self, position: int) -> LayoutRow | None:
        """The layout of the tensor that a copy reads, where it is one of the call's inputs."""
        stream = self.streams[position]
        return self.flow.row(stream.ref) if stream is not None and stream.ref is not None else None

    def operand(self, position: int) -> str | None:
        """The operand in words: which input, its sizes and strides."""
        copy, stream = self.copies[position], self.streams[position]
        if copy.sizes is None:
            return None
        if copy.call < 0 and copy.op >= 0 and (place := self._input_of_top_op(copy)) is not None:
            return f"input {place}, {_sizes(copy.sizes)} with strides {_sizes(copy.source_strides)}"
        if copy.kind == "library":
            strides = f" with strides {_sizes(copy.source_strides)}" if copy.source_strides else ""
            return ", ".join(filter(None, (role_of(self, position), f"{_sizes(copy.sizes)}{strides}")))
        if copy.backward and not copy.direct and not self.reads_input(position):
            return f"the gradient, {_sizes(copy.sizes)} with strides {_sizes(copy.source_strides)}"
        scripted = self.scripted(copy.call)
        if stream is None or stream.operand is None:
            inside = f" inside `{scripted}` (TorchScript)" if scripted else ""
            own = "its own result, " if is_of_own_result(self, position) else ""
            strides = _sizes(copy.source_strides)
            return f"{own}{_sizes(copy.sizes)} with strides {strides}{inside}" if copy.source_strides else None
        row = self.operand_row(position)
        assert row is not None
        of = f" of `{scripted}` (TorchScript)" if scripted else ""
        return f"input {stream.operand}{of}, {_sizes(row.sizes)} with strides {_sizes(row.strides)}"

    def _input_of_top_op(self, copy: TracedCopy) -> int | None:
        """Which input of the operator a copy reads, for a trace without a call log."""
        ops = self.trace.ops
        outer = next((index for index in ops.around(copy.op) if ops.text(index) == copy.top_op), copy.op)
        args = ops.args[outer]
        inputs = list(zip(args.dims, args.strides, strict=False))
        wanted = ([*(copy.sizes or ())], [*(copy.source_strides or ())])
        return next((place for place, given in enumerate(inputs) if given == wanted), None)


def _moving(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]


def _sizes(values: tuple[int, ...] | None) -> str:
    return "(" + ", ".join(map(str, values or ())) + ("," if values and len(values) == 1 else "") + ")"
