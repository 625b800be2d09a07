"""Where a gradient gets its order from: forward along the calls that handed it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property

from stridewise import layout
from stridewise.analysis.backward import ForwardOps
from stridewise.analysis.copies import TracedCopy
from stridewise.analysis.functions import DECIDE_GRADIENT_ORDER, short_name
from stridewise.analysis.lineage import Flow, Goal, Origin, moving
from stridewise.recording.model import LayoutRow
from stridewise.recording.trace import Trace


class Gradients:
    """What each call's backward was given, as the profiler wrote it down, and so who put a gradient out of order.

    A gradient that arrives out of order was made so by the first call whose own gradient arrived in order. Of several
    calls that use a tensor the one whose backward ran first decides: its gradient is what the others are added to.
    """

    def __init__(self, trace: Trace, forward_ops: ForwardOps, flow: Flow) -> None:
        self.trace = trace
        self.flow = flow
        self._forward_ops = forward_ops
        self._origins: dict[tuple[int, Goal], tuple[Origin, tuple[int, ...]] | None] = {}

    @cached_property
    def nodes(self) -> dict[int, list[int]]:
        """The nodes of each call, in the order in which they ran."""
        found: dict[int, list[int]] = defaultdict(list)
        ops = self.trace.ops
        for node in sorted(self._forward_ops.nodes, key=ops.start_ns.__getitem__):
            forward, _ = self._forward_ops.of_node(node)
            if forward is not None and ops.call[forward] >= 0:
                found[ops.call[forward]].append(node)
        return found

    def arriving(self, call: int) -> list[LayoutRow]:
        """The gradients that the backward of a call was given; none where they were not recorded."""
        ops = self.trace.ops
        nodes = self.nodes.get(call, [])
        if not nodes:
            return []
        given = nodes[0] + 1  # the node itself lies right inside what evaluates it
        if given >= len(ops) or ops.parent[given] != nodes[0]:
            return []
        return [
            LayoutRow(sizes, strides, 0, kind, "")
            for sizes, strides, kind in ops.args[given].inputs
            if strides is not None and sizes
        ]

    def among(self, copies: Sequence[TracedCopy], saved: Collection[int]) -> dict[int, bool]:
        """Of the copies that are taken for those of saved inputs, by position, the ones of gradients laid out alike.

        A node is given gradients, and the operator that copies takes these and what was saved: how many of each lie as
        the copied tensor does is on record. Saved inputs are copied first, as kernels do; True is for a copy that may
        be of either.
        """
        ops = self.trace.ops
        nodes = {copies[position].node for position in saved} - {-1}
        groups: dict[tuple[int, int, tuple[tuple[int, int], ...]], list[int]] = defaultdict(list)
        for position, copy in enumerate(copies):
            if (
                copy.node in nodes
                and not copy.direct
                and copy.op > copy.node + 1
                and copy.sizes
                and copy.source_strides
            ):
                outermost = [op for op in ops.around(copy.op) if op > copy.node + 1][-1]
                groups[copy.node, outermost, moving(copy.sizes, copy.source_strides)].append(position)
        found: dict[int, bool] = {}
        for (node, _, dimensions), group in groups.items():
            doubtful = [position for position in group if position in saved]
            given = self._alike(node + 1, dimensions)  # the node itself lies right inside what evaluates it
            if not doubtful or not given:
                continue
            around = ops.around(copies[group[0]].op)
            taken = max(self._alike(op, dimensions) for op in around if op > node)
            of_gradients = max(len(group) - (taken - given), min(len(group), given))
            others = min(len(doubtful), max(0, len(group) - of_gradients))
            found |= dict.fromkeys(doubtful[others:], given < taken and len(group) < taken)
        return found

    def _alike(self, op: int, dimensions: tuple[tuple[int, int], ...]) -> int:
        inputs = self.trace.ops.args[op].inputs
        return sum(strides is not None and moving(sizes, strides) == dimensions for sizes, strides, _ in inputs)

    def origin(self, call: int, goal: Goal) -> tuple[Origin, tuple[int, ...]] | None:
        """The call whose backward put the gradient of another's output out of order, and those that handed it on.

        `inside`: the call's own. None where the recording does not tell.
        """
        key = (call, goal)
        if key not in self._origins:
            self._origins[key] = self._find(call, goal)
        return self._origins[key]

    def _find(self, call: int, goal: Goal) -> tuple[Origin, tuple[int, ...]] | None:
        arrived = self.arriving(call)
        if not arrived:
            return None
        if all(goal.is_met_by(row) for row in arrived):  # its own kernels put it out of order
            return Origin("inside", call), ()
        carriers: list[int] = []
        current, seen = call, {call}
        while True:
            consumer = self._decider(current)
            if consumer is None or consumer in seen:
                return None
            given = self.arriving(consumer)
            if any(goal.is_met_by(row) for row in given) or not self._hands_on(consumer, current):
                return Origin("call", consumer), tuple(carriers)
            if not given:  # a scalar, as what a loss ends in is given
                return (Origin("call", consumer), tuple(carriers)) if self._is_scalar(consumer) else None
            seen.add(consumer)
            carriers.append(consumer)
            current = consumer

    def _decider(self, call: int) -> int | None:
        ops = self.trace.ops
        users = [user for user in self.flow.consumers.get(call, ()) if self.nodes.get(user)]
        return min(users, key=lambda user: ops.start_ns[self.nodes[user][-1]], default=None)

    def _hands_on(self, call: int, producer: int) -> bool:
        """Whether the backward of a call keeps the order of its gradient: that of a view, of elementwise operators."""
        if self.flow.is_view(call):
            return True
        if short_name(self.flow.log.functions[self.flow.log.calls[call].function]) in DECIDE_GRADIENT_ORDER:
            return False
        given, made = self.arriving(call), self.arriving(producer)
        return not (given and made) or any(
            layout.memory_order(before.layout) == layout.memory_order(after.layout)
            for before in given
            for after in made
        )

    def _is_scalar(self, call: int) -> bool:
        rows = [row for ref in self.flow.log.calls[call].outputs if (row := self.flow.row(ref)) is not None]
        return bool(rows) and not any(row.sizes for row in rows)
