"""One step as a row of calls: what the layout map shows."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from math import prod

from stridewise.analysis.case import Case
from stridewise.analysis.copies import call_marks
from stridewise.analysis.functions import short_name
from stridewise.findings import Site
from stridewise.layout import Layout, LayoutClass, name
from stridewise.recording.build import NODE
from stridewise.recording.model import MARK, CallRow
from stridewise.results.timeline import StepCall, Timeline

MOST_CALLS = 50_000
"""A page of more is of no use, and a step that was not found may hold millions."""
_NESTED = 4
"""How many operators of a node are looked at for its input: the node's own mark has none."""

_Shape = tuple[tuple[int, ...], tuple[int, ...]]


def timeline(case: Case) -> Timeline | None:
    """The first step of a case; None where no layout of its calls was recorded."""
    if not case.trace.steps:
        return None
    made = _Timeline(case)
    return made.result() if any(call.layout is not None for call in made.calls) else None


@lru_cache(10_000)
def _class_of(shape: _Shape) -> LayoutClass:
    return name(Layout(*shape))


class _Timeline:
    def __init__(self, case: Case) -> None:
        self.case, self.trace, self.ops = case, case.trace, case.trace.ops
        self.step = case.trace.steps[0]
        self.modules: dict[str, int] = {}
        self.sites: dict[tuple[object, ...], int] = {}
        self.rows: list[Site] = []
        found = sorted(self._outermost(), key=self.ops.start_ns.__getitem__)
        paid = self._paid(set(found))
        nodes = self.ops.starting(NODE)
        found = [op for op in found if op in paid or not self._runs_backward(op, nodes)]
        self.left_out = max(len(found) - MOST_CALLS, 0)
        self.kept = found[:MOST_CALLS]
        self.calls = [self._call(op, *paid.get(op, (0, 0))) for op in self.kept]

    def result(self) -> Timeline:
        return Timeline(
            duration_ns=self.step.end_ns - self.step.start_ns,
            modules=tuple(self.modules),
            sites=tuple(self.rows),
            calls=tuple(self.calls),
            left_out=self.left_out,
        )

    def _outermost(self) -> Iterator[int]:
        """Calls, or without a log operators, that lie in no other, and the nodes of backward."""
        yield from (node for node in self.ops.starting(NODE) if self._in_step(node))
        if self.trace.log is not None:
            marks = set(call_marks(self.ops))
            for mark in marks:
                if (
                    self._in_step(mark)
                    and self._runs_something(mark)
                    and not any(
                        outer in marks or self._is_node(outer) for outer in islice(self.ops.around(mark), 1, None)
                    )
                ):
                    yield mark
            return
        for op in range(len(self.ops)):
            if self.ops.parent[op] < 0 and self._in_step(op) and not self._is_mark(op) and not self._is_node(op):
                yield op

    def _runs_something(self, mark: int) -> bool:
        """Whether a call runs an operator: getters, such as `grad`, are calls too."""
        return mark + 1 < len(self.ops) and self.ops.parent[mark + 1] == mark

    def _holds(self, mark: int, nodes: list[int]) -> bool:
        """Whether a call is one that runs a backward: its nodes are what is shown."""
        after = bisect_right(nodes, mark)
        return after < len(nodes) and mark in self.ops.around(nodes[after])

    def _in_step(self, op: int) -> bool:
        return self.step.start_ns <= self.ops.start_ns[op] < self.step.end_ns

    def _is_node(self, op: int) -> bool:
        return self.ops.text(op).startswith(NODE)

    def _is_mark(self, op: int) -> bool:
        return self.ops.text(op).startswith(MARK)

    def _runs_backward(self, mark: int, nodes: list[int]) -> bool:
        """Whether a call, such as `backward`, is there for nodes, which stand for themselves."""
        after = bisect_right(nodes, mark)
        return after < len(nodes) and mark in islice(self.ops.around(nodes[after]), 1, None)

    def _paid(self, kept: set[int]) -> dict[int, tuple[int, int]]:
        """How many copies of the tax each of them holds, and how many bytes they move."""
        found: dict[int, list[int]] = defaultdict(list)
        for position in self.case.taxed:
            copy = self.case.copies[position]
            if copy.step == 0 and (op := self._holder(position, kept)) is not None:
                found[op].append(copy.bytes_moved or 0)
        return {op: (len(moved), sum(moved)) for op, moved in found.items()}

    def _holder(self, position: int, kept: set[int]) -> int | None:
        copy = self.case.copies[position]
        inside = copy.op
        if inside < 0 and copy.event >= 0:
            inside = self.trace.device_events[copy.event].op
        if inside < 0 and copy.call >= 0:
            inside = self.case.op_of_call(copy.call) or -1
        return next((op for op in self.ops.around(inside) if op in kept), None)

    def _call(self, op: int, copies: int, bytes_moved: int) -> StepCall:
        backward = self._is_node(op)
        shape = self._input_of_node(op) if backward else self._output(op)
        site = self._site(op, backward)
        return StepCall(
            name=self._name(op, backward),
            module=-1 if site is None or site.module is None else self._number(site.module),
            site=-1 if site is None else self._site_number(site),
            start_ns=self.ops.start_ns[op] - self.step.start_ns,
            duration_ns=self.ops.end_ns[op] - self.ops.start_ns[op],
            layout=None if shape is None else _class_of(shape),
            sizes=None if shape is None else shape[0],
            strides=None if shape is None else shape[1],
            copies=copies,
            bytes_moved=bytes_moved,
            backward=backward,
        )

    def _name(self, op: int, backward: bool) -> str:
        if backward:
            return self.ops.text(op).removeprefix(NODE).lstrip(": ")
        return short_name(self.case.function(self.ops.call[op])) if self._is_mark(op) else self.ops.text(op)

    def _site(self, op: int, backward: bool) -> Site | None:
        if backward:
            op = self.case.forward_of_node(op)
        if op < 0:
            return None
        call = self.ops.call[op]
        return self.trace.site(call) if call >= 0 else self.case.places.of_op(op)

    def _output(self, op: int) -> _Shape | None:
        if not self._is_mark(op):
            return self._recorded(op)
        row: CallRow = self.case.log.calls[self.ops.call[op]]
        shapes = (self.case.flow.row(ref) for ref in (*row.outputs, *row.inputs))
        known = [(shape.sizes, shape.strides) for shape in shapes if shape is not None]
        # A view's first output says it all; of a call that gives nothing, its input does.
        return next((shape for shape in known if len(shape[0]) > 1), next(iter(known), None))

    def _input_of_node(self, node: int) -> _Shape | None:
        """The gradient that it was given: of the operators in it, the first that has a tensor of rank 2 or more."""
        for op in range(node + 1, min(node + 1 + _NESTED, len(self.ops))):
            if self.ops.start_ns[op] >= self.ops.end_ns[node] or self._is_node(op):
                return None
            if (shape := self._recorded(op)) is not None:
                return shape
        return None

    def _recorded(self, op: int) -> _Shape | None:
        """The largest of an operator's inputs."""
        inputs = [
            (sizes, strides) for sizes, strides, _ in self.ops.args[op].inputs if strides is not None and len(sizes) > 1
        ]
        return max(inputs, key=lambda shape: prod(shape[0]), default=None)

    def _number(self, module: str) -> int:
        return self.modules.setdefault(module, len(self.modules))

    def _site_number(self, site: Site) -> int:
        key = (
            site.file,
            site.line,
            site.column,
            site.end_line,
            site.end_column,
            site.expression,
            site.module,
            site.via,
        )
        if key not in self.sites:
            self.sites[key] = len(self.rows)
            self.rows.append(site)
        return self.sites[key]
