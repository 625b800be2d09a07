"""The cheapest way to give each of some variables the value 0 or 1, by a minimum cut. No torch."""

from collections.abc import Hashable, Iterable
from math import inf, isinf

import networkx

_ZERO, _ONE = "every variable that is 0", "every variable that is 1"


class Labelling:
    """A sum of costs of single variables, and of pairs whose second is 1 while the first is 0.

    Such a sum is submodular, so a minimum cut finds its minimum (Kolmogorov and Zabih, What energy functions can be
    minimized via graph cuts?, 2004). Costs are rounded to whole nanoseconds: flows of floats need not come to an end.
    """

    def __init__(self) -> None:
        self._graph = networkx.DiGraph()
        self._graph.add_nodes_from((_ZERO, _ONE))

    def cost(self, variable: Hashable, *, zero: float = 0, one: float = 0) -> None:
        """What either value of a variable costs; infinity for a value that it can't have."""
        least = min(zero, one)
        self._add(_ZERO, variable, one - least)
        self._add(variable, _ONE, zero - least)

    def pair(self, first: Hashable, second: Hashable, cost: float) -> None:
        """What it costs if the second is 1 while the first is 0; infinity where that can't be."""
        if first != second:
            self._add(first, second, cost)

    def all_of(self, name: Hashable, variables: Iterable[Hashable], gain: float) -> None:
        """Gain something if all of some variables are 1; `name` is a variable that stands for that."""
        self.cost(name, zero=gain)
        for variable in variables:
            self.pair(variable, name, inf)

    def ones(self) -> set[Hashable]:
        """The variables that are 1 where the sum is least; of several such sets the smallest.

        All at 0 has to be possible.
        """
        _, (_, ones) = networkx.minimum_cut(self._graph, _ZERO, _ONE)
        return set(ones) - {_ONE}

    def _add(self, start: Hashable, end: Hashable, cost: float) -> None:
        if isinf(cost):
            self._graph.add_edge(start, end)
            self._graph[start][end].pop("capacity", None)  # an edge without one has no limit
        elif round(cost) > 0:
            known = self._graph.get_edge_data(start, end)
            if known is None:
                self._graph.add_edge(start, end, capacity=round(cost))
            elif "capacity" in known:
                known["capacity"] += round(cost)


__all__ = ["Labelling"]
