"""Which implementation ran each convolution, product, normalization, attention and pooling of a recording."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.copies import top_op
from stridewise.analysis.paths.implementations import Implementations
from stridewise.analysis.paths.library import PRIMITIVES, dtype_of, formats_of
from stridewise.analysis.paths.missed import Missed, chose_math, missed, suspects
from stridewise.analysis.paths.operands import Operands
from stridewise.analysis.paths.tensors import Tensors
from stridewise.analysis.paths.units import Unit, Units
from stridewise.recording.trace import Trace
from stridewise.results import Cause, Family


class Execution(Struct, frozen=True, gc=False):
    """One execution of an operator, and what is known of the implementation that ran it."""

    family: Family
    name: str
    op: int
    """Position in `Trace.ops`; -1 where there is none."""
    site_op: int
    """The operator that tells where in the program it is: in backward the forward one, if it is known."""
    event: int
    """A kernel that no operator of the families launched; -1: none."""
    backend: str
    dtype: str | None
    autocast: bool
    operands: tuple[str, ...]
    missed: Missed | None
    evidence: str
    duration_ns: int | None
    inferred: bool


def find_executions(trace: Trace, causes: Sequence[Cause | None], forward_ops: ForwardOps) -> list[Execution]:
    """All of them, in the order of the trace; then kernels and primitives that belong to no operator.

    `causes` say of each device event whether it only changes layout.
    """
    finder = _Finder(trace, causes, forward_ops, None)
    return [*finder.executions(), *finder.kernels_alone(), *finder.primitives_alone()]


def find_suspects(trace: Trace, causes: Sequence[Cause | None], forward_ops: ForwardOps) -> list[Execution]:
    """Those of them that may have missed a faster path: there are few, and finding them takes little."""
    wanted = suspects(trace.ops)
    return list(_Finder(trace, causes, forward_ops, wanted).executions()) if wanted else []


def _without_attention_missed(execution: Execution) -> Execution:
    if execution.missed is None or execution.missed.path != "fused attention":
        return execution
    return msgspec.structs.replace(execution, missed=None)


class _Finder:
    def __init__(
        self,
        trace: Trace,
        causes: Sequence[Cause | None],
        forward_ops: ForwardOps,
        holding: frozenset[int] | None,
    ) -> None:
        self.trace = trace
        self.ops = trace.ops
        self.causes = causes
        self.forward_ops = forward_ops
        self.units = Units(trace, holding)
        self.tensors = Tensors(trace.ops)
        self.implementations = Implementations(trace, causes, self.tensors)
        self.operands = Operands(trace.ops, self.tensors)
        self.math_is_chosen = False
        """Attention that suits a fused kernel took the math path: the program, or something unrecorded, wants it so."""

    def executions(self) -> list[Execution]:
        """What is known of all units."""
        found = [self.execution(unit) for unit in self.units.found]
        return [_without_attention_missed(execution) for execution in found] if self.math_is_chosen else found

    def execution(self, unit: Unit) -> Execution:
        """What is known of one unit."""
        ops, first = self.ops, unit.first
        forward = self._forward(first)
        ran = self.implementations.of(unit, self.units.containing(forward) if forward >= 0 else None)
        autocast, concluded = self._autocast(unit)
        is_backward = ops.node[first] >= 0 and ops.call[first] < 0
        transposes = sum(self.causes[event] == "transpose" for event in unit.events)
        self.math_is_chosen = self.math_is_chosen or (
            unit.family == "attention" and chose_math(ops, self.tensors, unit)
        )
        name = ops.text(first)
        operands = self.operands.words(unit)
        inside = "transposed inside" if transposes else "reordered inside" if ran.reorders else None
        if inside and operands:
            operands = (f"{operands[0]}, {inside}", *operands[1:])
        return Execution(
            family=unit.family,
            name=f"{name} (backward)" if is_backward and "backward" not in name else name,
            op=first,
            site_op=forward if is_backward and forward >= 0 else first,
            event=-1,
            backend=ran.backend,
            dtype=ran.dtype,
            autocast=autocast,
            operands=operands,
            missed=missed(ops, self.tensors, unit, transposes, ran.alignment),
            evidence=", ".join(dict.fromkeys(ran.evidence)),
            duration_ns=self._duration(unit, ran.on_device),
            inferred=ran.inferred or concluded,
        )

    def _forward(self, op: int) -> int:
        node = self.ops.node[op]
        forward, _ = self.forward_ops.of_node(node) if node >= 0 else (None, False)
        return -1 if forward is None else forward

    def _autocast(self, unit: Unit) -> tuple[bool, bool]:
        """Whether autocast gave the operator other operands than the program did, and whether that is concluded only.

        Autocast is a layer of the dispatcher: what it casts runs as an operator of the same name inside the first.
        """
        for inside, around in zip(unit.chain, unit.chain[1:], strict=False):
            if self.ops.text(inside) != self.ops.text(around):
                continue
            before, after = ([tensor and tensor.dtype for tensor in self.tensors.of(op)] for op in (around, inside))
            if any(before) and any(after):
                return before != after, False
            return any(self.ops.text(op) == "aten::_to_copy" for op in range(around + 1, inside)), True
        return False, False

    def _duration(self, unit: Unit, on_device: bool) -> int | None:
        if unit.events:
            return sum(self.trace.device_events[event].duration_ns for event in unit.events)
        # What launched work that was not recorded did not take the time of its launch.
        return None if on_device else self.ops.end_ns[unit.timed] - self.ops.start_ns[unit.timed]

    # -- without operators ------------------------------------------------------------------------------------------

    def kernels_alone(self) -> Iterator[Execution]:
        """Kernels of a family that no operator of one launched: of extensions, generated code, graphs of launches."""
        for event in self.units.orphans:
            ran = self.implementations.of_kernel(event)
            op = self.trace.device_events[event].op
            if ran is not None:
                yield Execution(
                    family=ran.family,
                    name=top_op(self.ops, op) if op >= 0 else "(no operator)",
                    op=op,
                    site_op=op,
                    event=event,
                    backend=ran.backend,
                    dtype=ran.dtype,
                    autocast=False,
                    operands=ran.operands,
                    missed=None,
                    evidence=", ".join(ran.evidence),
                    duration_ns=self.trace.device_events[event].duration_ns,
                    inferred=False,
                )

    def primitives_alone(self) -> Iterator[Execution]:
        """What a log of oneDNN tells that has no operators beside it."""
        for record in self.implementations.primitives.alone():
            if family := PRIMITIVES.get(record.primitive):
                yield Execution(
                    family=family,
                    name=record.primitive,
                    op=-1,
                    site_op=-1,
                    event=-1,
                    backend="oneDNN",
                    dtype=dtype_of(record),
                    autocast=False,
                    operands=formats_of(record),
                    missed=None,
                    evidence=record.implementation,
                    duration_ns=record.duration_ns,
                    inferred=False,
                )
