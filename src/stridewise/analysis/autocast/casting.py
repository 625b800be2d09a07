"""The operators that autocast took up, read from a trace: what it cast for each, and what it had cast before.

Autocast is a layer of torch's dispatcher. An operator that it takes up casts its operands (`aten::to`, below the
operator itself), and then runs once more, as an operator of the same name inside the first.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.recording.build import NODE
from stridewise.recording.dtypes import ITEM_SIZES, from_cpp
from stridewise.recording.model import MARK
from stridewise.recording.nesting import integers
from stridewise.recording.trace import OpArgs

_CASTS = frozenset({"aten::to", "aten::_to_copy"})
_COPY = "aten::copy_"
_CAST_NODE = f"{NODE}ToCopyBackward0"
_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
_LOWER = frozenset({"float16", "bfloat16"})

Shape = tuple[tuple[int, ...], tuple[int, ...] | None, str | None]
"""Sizes, strides and dtype of an operand."""


class Cast(Struct, frozen=True, gc=False):
    """One cast that autocast made. Operators are positions in `Trace.ops`; -1: none."""

    op: int
    copy: int
    """The `aten::copy_` in it."""
    ref: int
    """What it reads, a position in the log's `refs`."""
    place: int
    """Of that in the call's inputs."""
    sizes: tuple[int, ...]
    source_strides: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    source_dtype: str | None
    dtype: str | None
    bytes_moved: int | None
    duration_ns: int


class Casting(Struct, frozen=True, gc=False):
    """One execution of an operator that autocast took up."""

    outer: int
    """As the program called it."""
    inner: int
    """As it ran."""
    call: int
    region: int
    """In the log's `autocast`; -1: not recorded."""
    step: int | None
    given: tuple[str, ...]
    ran: tuple[str, ...]
    casts: tuple[Cast, ...]
    hits: tuple[int, ...]
    """The operands that came from the cache: what they are in the log's `refs`, or -1."""


class Gradient(Struct, frozen=True, gc=False):
    """A gradient that backward casts back, for a cast of forward."""

    casting: int
    """Position among the castings."""
    step: int | None
    bytes_moved: int | None
    duration_ns: int


class Castings:
    """All that autocast did in a recording."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ops = case.trace.ops
        self.regions = case.log.autocast
        self._starts = [step.start_ns for step in case.trace.steps]
        self._events: dict[int, int] | None = None
        found = [casting for casting in map(self._casting, *self._twins()) if casting is not None]
        self.found: list[Casting] = found if self._is_autocast(found) else []

    def step(self, op: int) -> int | None:
        """The step that an operator runs in."""
        return step_of(self.case.trace, self._starts, self.ops.start_ns[op])

    def call_around(self, op: int) -> int:
        """The call that an operator runs in; for one of backward, the call that runs backward there."""
        return next((self.ops.call[outer] for outer in self.ops.around(op) if self.ops.call[outer] >= 0), -1)

    def region_of(self, call: int) -> int:
        """The region that a call was made in; -1: none, or not recorded."""
        return self.case.log.calls[call].autocast if call >= 0 else -1

    def gradients(self) -> Iterator[Gradient]:
        """The casts of backward that belong to casts of forward."""
        ops = self.ops
        nodes = set(ops.named(_CAST_NODE)) if self.found else set()
        if not nodes:
            return
        owner = {cast.op: place for place, casting in enumerate(self.found) for cast in casting.casts}
        for copy in ops.named(_COPY):
            if ops.node[copy] not in nodes:
                continue
            forward = self.case.forward_of_node(ops.node[copy])
            casting = next((owner[op] for op in ops.around(forward) if op in owner), None)
            shapes = _shapes(ops.args[copy])
            if casting is not None and len(shapes) > 1 and shapes[0][2] != shapes[1][2]:
                yield Gradient(casting, self.step(copy), _moved(shapes[1], shapes[0]), self._duration(copy, copy))

    # -- one operator -----------------------------------------------------------------------------------------------

    def _twins(self) -> tuple[Sequence[int], Sequence[int]]:
        """Operators of the same name, one directly inside the other: the outer ones and the inner ones."""
        ops = self.ops
        name, parent = integers(ops.name), integers(ops.parent)
        if not len(name):
            return [], []
        wanted = np.array(["::" in text and not text.startswith((MARK, NODE)) for text in ops.names])
        for text in (*_CASTS, _COPY):
            wanted[[number for number, known in enumerate(ops.names) if known == text]] = False
        inner = np.flatnonzero((parent >= 0) & (name == name[parent]) & wanted[name])
        return parent[inner].tolist(), inner.tolist()

    def _casting(self, outer: int, inner: int) -> Casting | None:
        ops = self.ops
        call = self.call_around(outer)
        region = self.region_of(call)
        inputs = self._inputs(call)
        made = [child for child in range(outer + 1, inner) if ops.parent[child] == outer and ops.text(child) in _CASTS]
        before, after = _shapes(ops.args[outer]), _shapes(ops.args[inner])
        changed = [
            (given, self._claim(inputs, given))
            for given, ran in zip(before, after, strict=False)
            if given[2] in _FLOATS and ran[2] in _FLOATS and given[2] != ran[2]
        ]
        # A parameter may have come from the cache: of two that look alike it is the other one that was cast.
        changed.sort(key=lambda operand: self._is_parameter(operand[1][1]))
        casts = [cast for child in made if (cast := self._cast(child, inner, changed, inputs)) is not None]
        if not casts and not changed:
            return None
        given = tuple(shape[2] for shape in before if shape[2] in _FLOATS)
        ran = tuple(shape[2] for shape in after if shape[2] in _FLOATS)
        if region >= 0 and not self.regions[region].enabled:  # type: ignore[index]
            if not _is_to_fewer_bits(given, ran):
                return None
            region = -1  # turned on by other means than a region
        return Casting(
            outer=outer,
            inner=inner,
            call=call,
            region=region,
            step=self.step(outer),
            given=given or tuple(cast.source_dtype for cast in casts if cast.source_dtype),
            ran=tuple(dict.fromkeys(ran)) or tuple(dict.fromkeys(cast.dtype for cast in casts if cast.dtype)),
            casts=tuple(casts),
            hits=tuple(ref for _, (_, ref) in changed),
        )

    def _cast(
        self,
        op: int,
        end: int,
        changed: list[tuple[Shape, tuple[int, int]]],
        inputs: list[tuple[int, int]],
    ) -> Cast | None:
        """The cast that an operator makes; it takes what it reads from `changed`, or else from `inputs`."""
        ops = self.ops
        copy = next(
            (
                inside
                for inside in range(op + 1, end)
                if ops.text(inside) == _COPY and ops.start_ns[inside] < ops.end_ns[op]
            ),
            -1,
        )
        if copy < 0:
            return None
        target, source = (*_shapes(ops.args[copy]), _NO_SHAPE, _NO_SHAPE)[:2]
        if source[2] is not None and source[2] == target[2]:
            return None
        place, ref = -1, -1
        same = [position for position, (shape, _) in enumerate(changed) if shape == source]
        if same:
            place, ref = changed.pop(same[0])[1]
        elif source[2] is not None:
            place, ref = self._claim(inputs, source)
        return Cast(
            op=op,
            copy=copy,
            ref=ref,
            place=place,
            sizes=source[0],
            source_strides=source[1],
            strides=target[1],
            source_dtype=source[2],
            dtype=target[2],
            bytes_moved=_moved(source, target),
            duration_ns=self._duration(op, copy),
        )

    def _inputs(self, call: int) -> list[tuple[int, int]]:
        """What a call takes, by its places; each is claimed by one operand."""
        return list(enumerate(self.case.log.calls[call].inputs)) if call >= 0 else []

    def _claim(self, inputs: list[tuple[int, int]], shape: Shape) -> tuple[int, int]:
        for position, (_, ref) in enumerate(inputs):
            row = self.case.flow.row(ref)
            if row is not None and (row.sizes, row.strides, row.dtype) == shape:
                return inputs.pop(position)
        return -1, -1

    def _is_parameter(self, ref: int) -> bool:
        return ref >= 0 and is_parameter(self.case, ref)

    def _duration(self, op: int, copy: int) -> int:
        """On a device the time of what the copy launched, else that of the operator."""
        if self._events is None:
            self._events = defaultdict(int)
            for event in self.case.trace.device_events:
                for around in self.ops.around(event.op):
                    if self.ops.text(around) == _COPY:
                        self._events[around] += event.duration_ns
                        break
        return self._events.get(copy, self.ops.end_ns[op] - self.ops.start_ns[op])

    def _is_autocast(self, found: Sequence[Casting]) -> bool:
        """Without regions, only a cast to fewer bits tells that it was autocast and no other layer that cast."""
        if any(casting.region >= 0 for casting in found):
            return True
        return any(_is_to_fewer_bits(casting.given, casting.ran) for casting in found)


def _is_to_fewer_bits(given: Sequence[str], ran: Sequence[str]) -> bool:
    return any(dtype in _LOWER and dtype not in given for dtype in ran)


def is_parameter(case: Case, ref: int) -> bool:
    """Whether a tensor is a parameter of the program's modules."""
    return case.log.names.get(case.log.refs[ref].object, "").startswith("parameter")


def outermost(case: Case, region: int) -> int:
    """The region, entered in no other, that one lies in: when it ends autocast forgets its casts."""
    rows = case.log.autocast or []
    while region >= 0 and rows[region].parent >= 0:
        region = rows[region].parent
    return region


_NO_SHAPE: Shape = ((), None, None)


def _shapes(args: OpArgs) -> list[Shape]:
    return [(sizes, strides, from_cpp(kind)) for sizes, strides, kind in args.inputs]


def _moved(source: Shape, target: Shape) -> int | None:
    item, source_item = ITEM_SIZES.get(target[2] or ""), ITEM_SIZES.get(source[2] or "")
    if item is None or source_item is None or source[1] is None or target[1] is None or source[0] != target[0]:
        return None
    return layout.bytes_moved(source[0], source[1], source_item, target[1], item)
