"""What names stand for at one place of a function. Branches write into it, and are taken back and joined."""

from collections.abc import Iterable, Sequence

from stridewise.linter.facts.value import UNKNOWN, State, Value, join

Bound = dict[str, Value | None]
"""What a branch bound: names to what they stand for at its end, None if they are not bound there."""


class Environment:
    """The names that a scope has bound, and what is known of their values.

    One object for a whole function: a branch costs what it bound, however many names there are.
    """

    __slots__ = ("_laid", "_trail", "known", "lays", "shared")

    def __init__(self, known: dict[str, Value] | None = None) -> None:
        self.known = known or {}
        """Names that were not bound yet are not in it: they may be those of imports."""
        self.shared: set[str] = set()
        """Names that something else may bind anew at any time: nothing is known of them."""
        self.lays = True
        """Whether layouts stay as they are: not where something that runs later may change them at any time."""
        self._trail: list[Bound] = []
        self._laid = {name for name, value in self.known.items() if value.state is not State.UNKNOWN}

    def bind(self, name: str, value: Value | None) -> None:
        """Let a name stand for a value; None takes its binding away."""
        known = self.known
        if self._trail:
            self._trail[-1].setdefault(name, known.get(name))
        if value is None:
            known.pop(name, None)
            return
        if name in self.shared:
            value = UNKNOWN
        if value.state is not State.UNKNOWN:
            if self.lays:
                self._laid.add(name)
            else:
                value = Value(value.kind)
        known[name] = value

    def forget(self, names: Iterable[str]) -> None:
        """Let names stand for something that is not known."""
        for name in names:
            self.bind(name, UNKNOWN)

    def forget_layouts(self) -> None:
        """Keep no more of all values than what kind they are."""
        laid, self._laid = self._laid, set()
        for name in laid:
            value = self.known.get(name)
            if value is not None and value.state is not State.UNKNOWN:
                self.bind(name, Value(value.kind))

    def share(self, names: Iterable[str]) -> None:
        """Know nothing of names from now on, whatever is bound to them."""
        self.shared.update(names)
        self.forget(self.shared)

    def branch(self) -> None:
        """Begin a branch; `leave` ends it."""
        self._trail.append({})

    def leave(self) -> Bound:
        """End the last branch: take back what it bound, and tell it."""
        known = self.known
        before = self._trail.pop()
        bound: Bound = {name: known.get(name) for name in before}
        for name, value in before.items():
            if value is None:
                known.pop(name, None)
                continue
            known[name] = value
            if value.state is not State.UNKNOWN:
                self._laid.add(name)
        return bound

    def merge(self, branches: Sequence[Bound]) -> None:
        """Go on after one of several branches."""
        for name in dict.fromkeys(name for bound in branches for name in bound):
            now = self.known.get(name)
            ends = [bound.get(name, now) for bound in branches]
            # Where a name is not bound, reading it is an error: what reads it had the other value.
            values = [value for value in ends if value is not None]
            joined = values[0] if values else None
            for value in values[1:]:
                joined = join(joined, value) if joined is not None else None
            self.bind(name, joined)
