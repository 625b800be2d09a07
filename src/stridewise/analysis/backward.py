"""Which forward operator a node of the backward graph belongs to."""

from bisect import bisect_left, bisect_right
from collections import defaultdict

from stridewise.recording.build import NODE
from stridewise.recording.trace import Trace


class ForwardOps:
    """Finds forward operators by the sequence numbers that autograd gives nodes, per forward thread.

    Operators that create no node repeat the next number, so of several with a node's number the last started one made
    it. Nodes such as `CopySlices` carry a number that no operator has: the largest smaller one counts. An
    `AccumulateGrad` has none; it belongs with the node that ran just before it on its thread.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._by_number: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._nodes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._sequences: dict[int, tuple[int | None, int | None]] = {}
        ops = trace.ops
        nodes = set(ops.starting(NODE))
        for index, sequence, forward_thread in ops.args.numbers() if nodes else ():
            if index in nodes:
                self._nodes[ops.thread[index]].append((ops.start_ns[index], index))
                self._sequences[index] = (sequence, forward_thread)
            elif not forward_thread:
                self._by_number[ops.thread[index]][sequence].append(index)
        self._numbers = {thread: sorted(table) for thread, table in self._by_number.items()}

    @property
    def nodes(self) -> list[int]:
        """The nodes that have a number, as indices into the trace's operators."""
        return list(self._sequences)

    def of_node(self, node: int) -> tuple[int | None, bool]:
        """The forward operator of a node (an index into the trace's operators), and whether it was concluded only."""
        sequence, _ = self._sequences.get(node, (None, None))
        start_ns = self.trace.ops.start_ns[node]
        if sequence is None:
            previous = self._node_before(self.trace.ops.thread[node], start_ns)
            return (None, True) if previous is None else (self._find(previous, start_ns)[0], True)
        return self._find(node, start_ns)

    def _node_before(self, thread: int, start_ns: int) -> int | None:
        nodes = self._nodes.get(thread, [])
        position = bisect_left(nodes, (start_ns, -1))
        return nodes[position - 1][1] if position else None

    def _find(self, node: int, before_ns: int) -> tuple[int | None, bool]:
        sequence, identity = self._sequences[node]
        assert sequence is not None
        threads = self._threads(identity, sequence)
        for thread in threads:
            numbers = self._numbers.get(thread, [])
            position = bisect_right(numbers, sequence)
            if not position:
                continue
            number = numbers[position - 1]
            numbered = self._by_number[thread][number]  # by start, as operators are
            started = bisect_left(numbered, before_ns, key=self.trace.ops.start_ns.__getitem__)
            if started:
                return numbered[started - 1], number != sequence or len(threads) > 1
        return None, True

    def _threads(self, identity: int | None, sequence: int) -> list[int]:
        known = self.trace.forward_threads.get(identity or 0)
        if known is not None:
            return [known]
        exact = [thread for thread, table in self._by_number.items() if sequence in table]
        return exact or list(self._by_number)
