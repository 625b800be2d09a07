"""Where a strided stream comes from: from a payer's operand back through carriers to its origin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from math import prod
from typing import Literal, Protocol

from msgspec import Struct

from stridewise import layout
from stridewise.analysis.copies import TracedCopy
from stridewise.analysis.functions import CONVOLUTIONS, orders_operands, short_name
from stridewise.recording.model import CallLog, LayoutRow, TensorRef
from stridewise.results import Change

OriginKind = Literal["call", "input", "parameter", "outside", "inside"]


class Goal(Struct, frozen=True):
    """What a copy makes of its source, so that a tensor of any rank can be asked whether it is that already."""

    change: Change
    order: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def channels_last(self) -> bool:
        """The copy makes a channels_last tensor (and not one that is row-major as well)."""
        return self.order != tuple(sorted(self.order)) and self.order == _channels_last_order(self.sizes)

    def is_met_by(self, row: LayoutRow) -> bool:
        """Whether a tensor already has what the copy makes."""
        shape = row.layout
        if self.change == "materialize":
            return not layout.is_expanded(shape)
        if self.change in ("pack", "unpack"):
            return not layout.is_gapped(shape)
        order = layout.memory_order(shape)
        if order == self.order and len(row.sizes) == len(self.sizes):
            return True
        if self.channels_last and len(row.sizes) in (4, 5):
            return order == _channels_last_order(row.sizes)
        return order == tuple(sorted(order))


class Origin(Struct, frozen=True):
    """What bore a strided stream."""

    kind: OriginKind
    call: int = -1
    """The call, or for `inside` and `outside` the call that first shows the stream."""
    object: int = -1
    name: str | None = None
    """What bore it when no call did: ``the input `pixel_values` ``."""


class Stream(Struct, frozen=True):
    """A copy's place in the flow of tensors through calls."""

    copy: int
    """Position in the list of copies."""
    goal: Goal
    operand: int | None
    """Position in the call's inputs, None where the call copies a tensor of its own making."""
    ref: int | None
    origin: Origin
    carriers: tuple[int, ...]
    inferred: bool


class Flow:
    """Which call produced each input of each call, by the identity of tensors over time."""

    def __init__(self, log: CallLog) -> None:
        self.log = log
        self.producers: list[list[int]] = []
        self.consumers: dict[int, list[int]] = defaultdict(list)
        """Calls that take an output of a call."""
        self._inferred: set[tuple[int, int]] = set()
        self._walked: dict[tuple[int, int, Goal], tuple[Origin, tuple[int, ...], bool]] = {}
        self._out_of_order_consumers: dict[tuple[int, bool], int | None] = {}
        self._model_inputs = self._named_inputs()
        self._module_outputs = self._outputs_of_modules()
        self._link()

    def _link(self) -> None:
        refs = self.log.refs
        by_object: dict[int, int] = {}
        by_memory: dict[tuple[int, int], int] = {}
        for position, call in enumerate(self.log.calls):
            producers = []
            before: dict[int, TensorRef] = {}
            for place, index in enumerate(call.inputs):
                ref = refs[index]
                before.setdefault(ref.object, ref)
                producer = by_object.get(ref.object, -1)
                if producer < 0 and ref.storage >= 0 and ref.object not in self.log.names:
                    # another Python object for the same memory: what C++ hands back, or a detached alias
                    producer = by_memory.get((ref.storage, ref.layout), -1)
                    if producer >= 0:
                        self._inferred.add((position, place))
                producers.append(producer)
            self.producers.append(producers)
            for producer in set(producers) - {-1}:
                self.consumers[producer].append(position)
            for index in call.outputs:
                ref = refs[index]
                old = before.get(ref.object)
                if old is None or old.layout != ref.layout:  # in place, a call bears nothing unless it changes strides
                    by_object[ref.object] = position
                if ref.storage >= 0:
                    by_memory[ref.storage, ref.layout] = by_object.get(ref.object, position)

    def row(self, ref: int) -> LayoutRow | None:
        """A tensor's layout; None where it is unknown."""
        position = self.log.refs[ref].layout
        return self.log.layouts[position] if position >= 0 else None

    def walk(self, call: int, place: int, goal: Goal) -> tuple[Origin, tuple[int, ...], bool]:
        """From input `place` of a call back to what bore its order: origin, carriers, whether a link is inferred.

        The origin is the first call whose determining input already met the goal; a call without such an input bore
        the stream itself; without a producer, the model's input or parameter.
        """
        key = (call, place, goal)
        if key not in self._walked:
            self._walked[key] = self._walk(call, place, goal)
        return self._walked[key]

    def _walk(self, call: int, place: int, goal: Goal) -> tuple[Origin, tuple[int, ...], bool]:
        carriers: list[int] = []
        inferred = False
        seen = {(call, place)}
        while True:
            ref = self.log.calls[call].inputs[place]
            inferred |= (call, place) in self._inferred
            producer = self.producers[call][place]
            if producer < 0:
                return self._unborn(ref, call), tuple(carriers), inferred
            determining = self._determining_input(producer, ref, goal)
            if determining is None or (producer, determining) in seen:
                return Origin("call", producer), tuple(carriers), inferred
            carriers.append(producer)
            call, place = producer, determining
            seen.add((call, place))

    def _determining_input(self, call: int, output: int, goal: Goal) -> int | None:
        """The input that decided an output's order, None when the call bore the order itself."""
        if orders_operands(self.log.functions[self.log.calls[call].function]):
            return None
        refs = self.log.refs
        out = refs[output]
        candidates = []
        for place, index in enumerate(self.log.calls[call].inputs):
            row = self.row(index)
            if row is None:
                continue
            if refs[index].storage == out.storage and out.storage >= 0 and refs[index].object != out.object:
                return None if goal.is_met_by(row) else place  # a view
            if not goal.is_met_by(row):
                candidates.append((place, row))
        made = self.row(output)
        if made is None or not candidates:
            return None
        order = layout.memory_order(made.layout)

        def preference(candidate: tuple[int, LayoutRow]) -> tuple[bool, int]:
            row = candidate[1]
            alike = len(row.sizes) == len(made.sizes) and layout.memory_order(row.layout) == order
            return not alike, -prod(row.sizes)

        return min(candidates, key=preference)[0]

    def _unborn(self, ref: int, call: int) -> Origin:
        number = self.log.refs[ref].object
        if name := self.log.names.get(number):
            return Origin("parameter", call, number, f"the {name}")
        if name := self._model_inputs.get(number):
            return Origin("input", call, number, f"the input `{name}`")
        if module := self._module_outputs.get(number):
            return Origin("outside", call, number, f"what `{module}` returns")
        return Origin("outside", call, number, "a tensor made outside the recorded calls")

    def name_of(self, ref: int) -> str:
        """What a tensor that no recorded call made is to the program, in words."""
        return self._unborn(ref, -1).name or ""

    def _named_inputs(self) -> dict[int, str]:
        return {
            self.log.refs[ref].object: path
            for call in reversed(self.log.module_calls)
            if call.parent < 0
            for path, ref in reversed(call.inputs)
        }

    def _outputs_of_modules(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for call in self.log.module_calls:
            path, kind = self.log.modules[call.module]
            for _, ref in call.outputs:
                found.setdefault(self.log.refs[ref].object, path or kind)
        return found

    def is_view(self, call: int) -> bool:
        """Whether what a call makes lies in the memory of one of its inputs, under another layout."""
        refs, row = self.log.refs, self.log.calls[call]
        inputs = {(refs[ref].storage, refs[ref].object) for ref in row.inputs if refs[ref].storage >= 0}
        storages = {storage for storage, _ in inputs}
        return any(
            refs[ref].storage in storages and (refs[ref].storage, refs[ref].object) not in inputs for ref in row.outputs
        )

    def out_of_order_consumer(self, call: int, goal: Goal) -> int | None:
        """Forward along the consumers of a call's output: the first that permutes, or has a strided operand."""
        key = (call, goal.channels_last)
        if key not in self._out_of_order_consumers:
            self._out_of_order_consumers[key] = self._find_out_of_order_consumer(call, goal.channels_last)
        return self._out_of_order_consumers[key]

    def _find_out_of_order_consumer(self, call: int, channels_last: bool) -> int | None:
        seen = {call}
        front = [call]
        while front:
            reached = []
            for current in front:
                for consumer in self.consumers.get(current, []):
                    if consumer in seen:
                        continue
                    seen.add(consumer)
                    if self._is_out_of_order(consumer, channels_last):
                        return consumer
                    reached.append(consumer)
            front = reached
        return None

    def _is_out_of_order(self, consumer: int, channels_last: bool) -> bool:
        call = self.log.calls[consumer]
        rows = [row for ref in [*call.inputs, *call.outputs] if (row := self.row(ref)) is not None]
        if channels_last:  # of tensors of other ranks nothing can be said, and row-major is what is out of order
            order = layout.memory_order
            images = [row for row in rows if len(row.sizes) in (4, 5)]
            return any(order(row.layout) != _channels_last_order(row.sizes) for row in images)
        return any(not _row_major(row) for row in rows)


def match_operands(copies: list[TracedCopy], flow: Flow) -> list[tuple[int | None, bool]]:
    """Which input of its call each copy reads (None: a tensor of the call's own making), and whether that is inferred.

    Several alike, as q, k and v of attention, are taken in order, each once.
    """
    used: dict[int, Counter[int]] = defaultdict(Counter)
    return [_match_operand(copy, flow, used[copy.call]) if _has_strides(copy) else (None, False) for copy in copies]


def _has_strides(copy: TracedCopy) -> bool:
    """Whether there is a call to look at, and a layout to look for: a library's own copies have neither."""
    return copy.call >= 0 and copy.kind != "library" and copy.sizes is not None


def _match_operand(copy: TracedCopy, flow: Flow, used: Counter[int]) -> tuple[int | None, bool]:
    assert copy.sizes is not None
    inputs = flow.log.calls[copy.call].inputs
    rows = [(place, row) for place, ref in enumerate(inputs) if (row := flow.row(ref)) is not None]
    exact = [place for place, row in rows if row.sizes == copy.sizes and row.strides == copy.source_strides]
    if exact:
        place = min(exact, key=lambda place: used[place])
        used[place] += 1
        return place, False
    assert copy.source_strides is not None
    wanted = moving(copy.sizes, copy.source_strides)
    folded = [place for place, row in rows if moving(row.sizes, row.strides) == wanted]
    if folded:  # the same dimensions, folded or renamed by a view inside the call
        place = min(folded, key=lambda place: used[place])
        used[place] += 1
        return place, False
    goal = goal_of(copy)
    unmet = [place for place, row in rows if not goal.is_met_by(row)]
    same_size = [place for place, row in rows if place in unmet and prod(row.sizes) == prod(copy.sizes)]
    for candidates in (same_size, unmet):
        if len(candidates) == 1:
            return candidates[0], True
    return None, False


def moving(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The dimensions that decide where elements lie, in whatever order: tensors that a view turns into each other."""
    return tuple(sorted((size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1 and stride))


def goal_of(copy: TracedCopy) -> Goal:
    """What a copy makes of its source."""
    assert copy.sizes is not None
    return Goal(copy.change, copy.order, copy.sizes)


class GradientOrigins(Protocol):
    """What tells which call put a gradient out of order."""

    def origin(self, call: int, goal: Goal) -> tuple[Origin, tuple[int, ...]] | None:
        """The call, and those that handed the gradient on; None where that is unknown."""

    def among(self, copies: Sequence[TracedCopy], saved: Collection[int]) -> dict[int, bool]:
        """Of the copies that are taken for those of saved inputs, by position, the ones of gradients laid out alike."""


def trace_streams(copies: list[TracedCopy], flow: Flow, gradients: GradientOrigins) -> list[Stream | None]:
    """Each copy's origin and carriers; None for a copy that belongs to no call."""
    operands = match_operands(copies, flow)
    saved = {
        position
        for position, (copy, (place, _)) in enumerate(zip(copies, operands, strict=True))
        if _has_strides(copy) and not copy.direct and _looks_like_saved_input(copy, place, flow)
    }
    arrived = gradients.among(copies, saved)
    streams: list[Stream | None] = []
    for position, (copy, operand) in enumerate(zip(copies, operands, strict=True)):
        if not _has_strides(copy):
            streams.append(None)
        elif copy.direct or (position in saved and position not in arrived):
            streams.append(_stream(position, copy, *operand, flow))
        else:
            streams.append(_gradient_stream(position, copy, flow, gradients, arrived.get(position, False)))
    return streams


def _stream(position: int, copy: TracedCopy, place: int | None, inferred: bool, flow: Flow) -> Stream:
    goal = goal_of(copy)
    if place is None:
        return Stream(position, goal, None, None, Origin("inside", copy.call), (), inferred or copy.inferred)
    ref = flow.log.calls[copy.call].inputs[place]
    row = flow.row(ref)
    assert row is not None
    if goal.is_met_by(row):
        return Stream(position, goal, place, ref, Origin("inside", copy.call), (), inferred or copy.inferred)
    origin, carriers, concluded = flow.walk(copy.call, place, goal)
    return Stream(position, goal, place, ref, origin, carriers, inferred or concluded or copy.inferred)


def _looks_like_saved_input(copy: TracedCopy, place: int | None, flow: Flow) -> bool:
    row = None if place is None else flow.row(flow.log.calls[copy.call].inputs[place])
    if row is None:
        return False
    assert copy.sizes is not None
    assert copy.source_strides is not None
    if layout.is_gapped(row.layout) and moving(row.sizes, row.strides) == moving(copy.sizes, copy.source_strides):
        return True  # products read what they saved transposed
    return row.sizes == copy.sizes and row.strides == copy.source_strides and not goal_of(copy).is_met_by(row)


def _gradient_stream(position: int, copy: TracedCopy, flow: Flow, gradients: GradientOrigins, inferred: bool) -> Stream:
    goal = goal_of(copy)
    inferred |= copy.inferred
    inside = Origin("inside", copy.call)
    if is_weight_gradient(copy, flow):
        return Stream(position, goal, None, None, inside, (), inferred)
    found = gradients.origin(copy.call, goal)
    if found is not None:
        return Stream(position, goal, None, None, *found, inferred)
    consumer = flow.out_of_order_consumer(copy.call, goal)  # a guess, where the gradients' strides are not recorded
    origin = inside if consumer is None else Origin("call", consumer)
    return Stream(position, goal, None, None, origin, (), inferred or consumer is not None)


def is_weight_gradient(copy: TracedCopy, flow: Flow) -> bool:
    """Whether a gradient copy moves the gradient of one of its call's parameters."""
    return weight_of_gradient(copy, flow) is not None


def weight_of_gradient(copy: TracedCopy, flow: Flow) -> LayoutRow | None:
    """The layout of the parameter, or of the weight of a convolution, whose gradient the copy moves."""
    if not copy.backward or copy.direct or copy.call < 0:
        return None
    call = flow.log.calls[copy.call]
    rows = [flow.row(ref) for ref in call.inputs]
    convolves = short_name(flow.log.functions[call.function]) in CONVOLUTIONS
    for place, (ref, row) in enumerate(zip(call.inputs, rows, strict=True)):
        if row is None or row.sizes != copy.sizes:
            continue
        named = flow.log.names.get(flow.log.refs[ref].object, "")
        image = rows[0] if convolves and place == 1 else row
        if named.startswith("parameter") or (image is not None and image.sizes != copy.sizes):
            return row
    return None


def _row_major(row: LayoutRow) -> bool:
    order = layout.memory_order(row.layout)
    return order == tuple(sorted(order)) and not layout.is_gapped(row.layout)


def _channels_last_order(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) not in (4, 5):
        return ()
    order = (0, *range(2, len(sizes)), 1)
    return tuple(dim for dim in order if sizes[dim] > 1)
