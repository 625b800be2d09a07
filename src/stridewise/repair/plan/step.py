"""A plan for a step: behind which calls to put tensors in order (row-major) so that it is cheapest. No torch.

Each place of the source gets one decision for all the calls that it makes, since that is what an edit is. A tensor lies
as it was recorded or in order. A call whose strided operands are all in order costs what it was measured to cost then.
Calls that were not measured cost the same in either case, and hand on what they handed on. What the model is given,
and parameters, stay as they are. A view that neither undoes nor keeps an order counts as handing on what it did.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import inf
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.recording.model import LayoutRow
from stridewise.repair.plan.costs import CallCost, Change, Costs, Layouts, Plan, PutInOrder, key_of
from stridewise.repair.plan.cut import Labelling

DEARER = 1.1
"""By how much more than it was measured to cost each copy has to gain: two measured times are never quite equal."""

Output = tuple[int, int]
"""A call, and which of the tensors that it gives."""
_Place = tuple[int, ...]
"""Calls that are one expression, and one of its outputs: one decision."""


class _Made(Struct, frozen=True):
    """A tensor that a call gives."""

    place: _Place
    strided: bool
    keeps: bool | None
    """It is in order if the operands are; None: unknown."""
    conversion_ns: float


class _Node(Struct, frozen=True):
    """A call of the step that takes or gives strided tensors."""

    call: int
    place: tuple[int, ...]
    """The expression that made it."""
    recorded_ns: float
    in_order_ns: float
    sources: tuple[Output | None, ...]
    """What gave its strided operands; None for one that stays as it is."""
    determining: Output | None
    """What gave the operand whose order it hands on."""
    made: tuple[_Made, ...]


def plan(case: Case, calls: Sequence[int], costs: Costs, may_convert: Callable[[Output], bool]) -> Plan | None:
    """The cheapest conversions for the calls of one step; None if it is cheapest as it is.

    `may_convert` says whether the source can be edited to put an output in order.
    """
    nodes = _Builder(case, set(calls), costs, may_convert).nodes(calls)
    wanted = _cheapest([_with_dearer_copies(node) for node in nodes]).converted
    before, after = _Walk(nodes, set()), _Walk(nodes, set(wanted))
    if after.total_ns >= before.total_ns:
        return None
    return Plan(
        conversions=tuple(
            PutInOrder(case.site(call), case.function(call), call, output) for call, output in after.converted.values()
        ),
        before_ns=before.total_ns,
        after_ns=after.total_ns,
        changes=_changes(case, before, after),
        mended=tuple(after.mended),
    )


# -- the step as calls that hand on tensors ------------------------------------------------------------------------


class _Builder:
    """Finds what each call of a step was given, and what is known of its costs."""

    def __init__(self, case: Case, step: set[int], costs: Costs, may_convert: Callable[[Output], bool]) -> None:
        self._case, self._log, self._step = case, case.log, step
        self._may_convert = may_convert
        self._editable: dict[_Place, bool] = {}
        self._known: dict[tuple[str, object, Layouts], CallCost] = {
            (cost.function, key_of(site), cost.inputs): cost for cost in costs.calls for site in cost.sites
        }
        self._copies = {(copy.sizes, copy.strides, copy.dtype): copy.ns for copy in costs.copies}
        rates = [copy.ns / size for copy in costs.copies if (size := _bytes(copy.sizes, copy.dtype))]
        self._rate = median(rates) if rates else inf
        """Nanoseconds a byte of copies that were not measured."""

    def nodes(self, calls: Sequence[int]) -> list[_Node]:
        found = (self._node(call) for call in calls)
        return [node for node in found if node.sources or any(made.strided for made in node.made)]

    def _node(self, call: int) -> _Node:
        row, flow = self._log.calls[call], self._case.flow
        given = [(place, shape) for place, ref in enumerate(row.inputs) if (shape := flow.row(ref)) is not None]
        strided = [(place, shape) for place, shape in given if not layout.is_contiguous(shape.layout)]
        inputs = tuple((shape.sizes, shape.strides) for _, shape in given)
        cost = self._known.get((self._case.function(call), key_of(self._case.site(call)), inputs))
        determining = self._determining(call, strided)
        return _Node(
            call=call,
            place=(row.site, row.via) if row.site >= 0 else (-1, call),
            recorded_ns=cost.recorded_ns if cost is not None else 0,
            in_order_ns=cost.in_order_ns if cost is not None else 0,
            sources=tuple(self._source(call, place) for place, _ in strided),
            determining=self._source(call, determining) if determining is not None else None,
            made=tuple(self._made(call, at, cost) for at in range(len(row.outputs))),
        )

    def _determining(self, call: int, strided: Sequence[tuple[int, LayoutRow]]) -> int | None:
        """The strided operand that shares memory with the result, or has its sizes, or is the largest."""
        row, refs = self._log.calls[call], self._log.refs
        if not strided or not row.outputs:
            return None
        made, shape = refs[row.outputs[0]], self._case.flow.row(row.outputs[0])

        def preference(operand: tuple[int, LayoutRow]) -> tuple[bool, bool, int]:
            place, given = operand
            shares = refs[row.inputs[place]].storage == made.storage >= 0
            alike = shape is not None and given.sizes == shape.sizes
            return not shares, not alike, -layout.numel(given.layout)

        return min(strided, key=preference)[0]

    def _source(self, call: int, place: int) -> Output | None:
        producer = self._case.flow.producers[call][place]
        if producer not in self._step:
            return None
        refs = self._log.refs
        ref = refs[self._log.calls[call].inputs[place]]
        made = [refs[index] for index in self._log.calls[producer].outputs]
        same = [at for at, one in enumerate(made) if one.object == ref.object]
        alias = [at for at, one in enumerate(made) if (one.storage, one.layout) == (ref.storage, ref.layout)]
        return (producer, (same or alias)[0]) if same or alias else None

    def _made(self, call: int, at: int, cost: CallCost | None) -> _Made:
        row, ref = self._log.calls[call], self._log.calls[call].outputs[at]
        shape = self._case.flow.row(ref)
        place = (row.site, row.via, row.function, at) if row.site >= 0 else (-1, call, at)
        if place not in self._editable:
            self._editable[place] = self._may_convert((call, at))
        return _Made(
            place=place,
            strided=shape is not None and not layout.is_contiguous(shape.layout),
            keeps=cost.gives_order[at] if cost is not None and at < len(cost.gives_order) else None,
            conversion_ns=self._conversion_ns(shape) if shape is not None and self._editable[place] else inf,
        )

    def _conversion_ns(self, shape: LayoutRow) -> float:
        known = self._copies.get((shape.sizes, shape.strides, shape.dtype))
        size = _bytes(shape.sizes, shape.dtype)
        return known if known is not None else self._rate * size if size else inf


def _bytes(sizes: tuple[int, ...], dtype: str) -> int:
    return layout.numel(layout.Layout(sizes, layout.contiguous_strides(sizes))) * ITEM_SIZES.get(dtype, 0)


# -- the cheapest labels -------------------------------------------------------------------------------------------


def _with_dearer_copies(node: _Node) -> _Node:
    return replace(node, made=tuple(replace(made, conversion_ns=DEARER * made.conversion_ns) for made in node.made))


def _cheapest(nodes: Sequence[_Node]) -> "_Walk":
    """The minimum cut's choice, without the conversions of which a walk shows that they don't pay.

    For the cut, all that a place hands on lies alike, and a call that operands in order make slower is so by the first.
    """
    found = _cut(nodes)
    while found.converted:
        fewer = (_Walk(nodes, set(found.converted) - {place}) for place in found.converted)
        best = min(fewer, key=lambda walk: walk.total_ns)
        if best.total_ns >= found.total_ns:
            break
        found = best
    return found


def _cut(nodes: Sequence[_Node]) -> "_Walk":
    labelling = Labelling()
    places = {(node.call, at): made.place for node in nodes for at, made in enumerate(node.made) if made.strided}
    for node in nodes:
        _add(labelling, node, places)
    wanted = labelling.ones()
    return _Walk(nodes, {place for place in places.values() if place in wanted})


def _add(labelling: Labelling, node: _Node, places: dict[Output, _Place]) -> None:
    """A call's part in the sum: a place is 1 if what it hands on is in order."""
    operands = {places.get(source) if source is not None else None for source in node.sources}
    determining = places.get(node.determining) if node.determining is not None else None
    gain = node.recorded_ns - node.in_order_ns
    if len(operands) == 1 and determining is not None:
        labelling.cost(determining, zero=node.recorded_ns, one=node.in_order_ns)
    elif None not in operands and gain > 0:
        labelling.all_of((node.call,), operands, gain)
    elif None not in operands and determining is not None:
        labelling.cost(determining, one=-gain)
    for made in node.made:
        if not made.strided:
            if made.keeps is False and determining is not None:
                labelling.cost(determining, one=made.conversion_ns)
        elif made.keeps and determining is not None:
            labelling.pair(determining, made.place, made.conversion_ns)
            labelling.pair(made.place, determining, inf)
        else:
            labelling.cost(made.place, one=made.conversion_ns)


class _Walk:
    """What a step costs with some places in order: each call and each copy, one after the other."""

    def __init__(self, nodes: Sequence[_Node], in_order: set[_Place]) -> None:
        self.converted: dict[_Place, Output] = {}
        """The places that have to copy, each with a call that does."""
        self.cost_ns: dict[tuple[int, ...], float] = defaultdict(float)
        """Of the calls at each place, with the copies behind them."""
        self.calls: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self.mended: list[int] = []
        self._labels: dict[Output, bool] = {}
        for node in nodes:
            self._pass(node, in_order)

    @property
    def total_ns(self) -> float:
        return sum(self.cost_ns.values())

    def _pass(self, node: _Node, in_order: set[_Place]) -> None:
        given = [source is not None and self._labels.get(source, False) for source in node.sources]
        mended = bool(given) and all(given)
        determining = node.determining is not None and self._labels.get(node.determining, False)
        self.calls[node.place].append(node.call)
        self.cost_ns[node.place] += node.in_order_ns if mended else node.recorded_ns
        if mended:
            self.mended.append(node.call)
        for at, made in enumerate(node.made):
            if made.strided:
                is_there, is_wanted = made.keeps is True and determining, made.place in in_order
            else:
                is_there, is_wanted = made.keeps is not False or not determining, True
            if is_wanted and not is_there:
                self.cost_ns[node.place] += made.conversion_ns
                self.converted.setdefault(made.place, (node.call, at))
            self._labels[node.call, at] = made.strided and (is_wanted or is_there)


def _changes(case: Case, before: _Walk, after: _Walk) -> tuple[Change, ...]:
    found = [
        Change(case.site(calls[0]), tuple(calls), after.cost_ns[place] - before.cost_ns[place])
        for place, calls in before.calls.items()
        if after.cost_ns[place] != before.cost_ns[place]
    ]
    return tuple(sorted(found, key=lambda change: -abs(change.ns)))


__all__ = ["Output", "plan"]
