"""When the next step is recorded: by number, and not before what recordings cost has been spread thin enough."""

import math

_TRIES = 3
"""How often the first recording is begun at once, should the program break it off."""
_PATIENCE = 100
"""Steps to the next try where only one is to be recorded, and it could not be."""


class Pace:
    """Steps are counted from 1; times are in seconds.

    The first recording is of step `first`, the next ones are of every `every`th after that, or later: a recording
    begins only if all before it have cost no more than `max_overhead` of the time that has passed. What recordings
    cost is thus at most that share, and the last one.
    """

    def __init__(self, *, first: int, every: int | None, max_overhead: float) -> None:
        self.due: float = first
        """The step that is recorded next; infinity if none is."""
        self._every = every
        self._max_overhead = max_overhead
        self.recordings = 0
        self._exempt = _TRIES
        self._spent_s = 0.0

    @property
    def spent_s(self) -> float:
        """What all recordings cost."""
        return self._spent_s

    def allows(self, elapsed_s: float, step_s: float) -> bool:
        """Whether the step that is due is recorded, `elapsed_s` after the start; if not, it is pushed back.

        `step_s` is how long a step takes.
        """
        if self._exempt:
            self._exempt -= 1
            return True
        missing_s = self._spent_s / self._max_overhead - elapsed_s
        if missing_s <= 0:
            return True
        # Not at every step anew where steps get faster.
        least = max(1, (self._every or 1) // 10)
        self.due += max(least, math.ceil(missing_s / step_s) if step_s > 0 else least)
        return False

    def recorded(self, cost_s: float) -> None:
        """The step that was due has been recorded."""
        self.recordings += 1
        self._exempt = 0
        self._spent_s += cost_s
        self.due += self._every if self._every is not None else math.inf

    def missed(self, cost_s: float) -> None:
        """The step that was due could not be recorded: the next turn is as far away as after a recording."""
        self._spent_s += cost_s
        self.due += self._every or _PATIENCE

    def again(self, cost_s: float) -> None:
        """What was begun was no whole step, or no step: one of the next takes its turn."""
        self._spent_s += cost_s
        self.due += 2  # never the one that begins where a recording ends: annotations of the program are still open
