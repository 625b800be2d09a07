"""Operators that belong together: a convolution with all that it holds, and the device events that it launched."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache

import numpy as np
from msgspec import Struct

from stridewise.analysis.paths.operators import BACKENDS, FAMILIES, PRODUCTS, executing
from stridewise.recording.trace import Ops, Trace
from stridewise.results import Family


class Unit(Struct, gc=False):
    """One execution of an operator of a family. Numbers are positions in `Trace.ops`, events in `device_events`."""

    family: Family
    first: int
    """The outermost operator."""
    end: int
    """One behind the last operator in it."""
    leaf: int
    """The operator that does the work."""
    leaf_end: int
    chain: tuple[int, ...]
    """The operators of the family from `leaf` out to `first`."""
    timed: int
    """The operator whose time on the CPU it is."""
    events: list[int]


class Units:
    """The units of a trace, or those that hold one of some operators; and the device events that belong to none."""

    def __init__(self, trace: Trace, holding: frozenset[int] | None = None) -> None:
        self.ops: Ops = trace.ops
        self._end_of_thread = cache(lambda thread: bisect_right(self.ops.thread, thread))
        self.found: list[Unit] = []
        for first, end, members in self._outermost():
            if holding is None or not holding.isdisjoint(members):
                self.found += self._units(first, end, members)
        self.orphans = self._assign(trace)
        """Events."""

    def containing(self, op: int) -> Unit | None:
        """The unit that an operator lies in."""
        place = bisect_right(self.found, op, key=lambda unit: unit.first) - 1
        return self.found[place] if place >= 0 and op < self.found[place].end else None

    def end(self, op: int) -> int:
        """One behind the last operator that an operator holds: they follow it, since operators are sorted by start."""
        ops = self.ops
        return bisect_left(ops.start_ns, ops.end_ns[op], op + 1, self._end_of_thread(ops.thread[op]))

    def _outermost(self) -> list[tuple[int, int, list[int]]]:
        found: list[tuple[int, int, list[int]]] = []
        end = 0
        for op in self.ops.named(*FAMILIES):
            if op >= end:
                end = self.end(op)
                found.append((op, end, []))
            found[-1][2].append(op)
        return found

    def _units(self, first: int, end: int, members: list[int]) -> list[Unit]:
        family = FAMILIES[self.ops.text(first)]
        leaves = self._products(members) if family == "matmul" else [self._leaf(members)]
        if len(leaves) == 1:
            return [self._unit(family, first, end, leaves[0], first)]
        # Of a product of three matrices each is an execution of its own.
        return [self._unit(family, first, self.end(leaf), leaf, leaf) for leaf in leaves]

    def _unit(self, family: Family, first: int, end: int, leaf: int, timed: int) -> Unit:
        chain = []
        for op in self.ops.around(leaf):
            if op < first:
                break
            if FAMILIES.get(self.ops.text(op)) == family:
                chain.append(op)
        return Unit(family, first, end, leaf, self.end(leaf), tuple(chain), timed, [])

    def _products(self, members: list[int]) -> list[int]:
        """The innermost operators that multiply: `mv` holds `addmv_`, and autocast's `bmm` the one that runs."""
        found: list[int] = []
        for op in members:
            if self.ops.text(op) not in PRODUCTS:
                continue
            if found and op < self.end(found[-1]):
                found[-1] = op
            else:
                found.append(op)
        # `einsum` may multiply elements and sum; on some devices `linear` has no other operator in it.
        return found or [op for op in members[:1] if self.ops.text(op) == "aten::linear"]

    def _leaf(self, members: list[int]) -> int:
        """The operator that only one implementation calls; else the one that works; else the inner of two alike."""
        names = [self.ops.text(op) for op in members]
        for is_wanted in (BACKENDS.__contains__, executing):
            for op, name in zip(members, names, strict=True):
                if is_wanted(name):
                    return self._innermost_alike(op, members, names)
        return self._innermost_alike(members[0], members, names)

    def _innermost_alike(self, op: int, members: Sequence[int], names: Sequence[str]) -> int:
        name, end = self.ops.text(op), self.end(op)
        return max(other for other, text in zip(members, names, strict=True) if text == name and op <= other < end)

    def _assign(self, trace: Trace) -> list[int]:
        events = [position for position, event in enumerate(trace.device_events) if event.category == "kernel"]
        if not self.found or not events:
            return events
        ops = np.array([trace.device_events[position].op for position in events])
        places = np.searchsorted(np.array([unit.leaf for unit in self.found]), ops, side="right")
        orphans = []
        for position, op, place in zip(events, ops.tolist(), places.tolist(), strict=True):
            # Before the leaf of its unit lies an event of a copy or a cast: then the unit is the next one.
            for candidate in (place - 1, place):
                if 0 <= candidate < len(self.found) and self._holds(self.found[candidate], op):
                    self.found[candidate].events.append(position)
                    break
            else:
                orphans.append(position)
        return orphans

    @staticmethod
    def _holds(unit: Unit, op: int) -> bool:
        return unit.first <= op < unit.end
