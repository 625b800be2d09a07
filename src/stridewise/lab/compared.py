"""Arms that were measured, and the predictions that can be made about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stridewise.lab.recorded import Recorded
from stridewise.lab.refusal import Refused
from stridewise.measure.rounds import Rounds
from stridewise.results.lab import Arm, Comparison, Prediction, Ratio, Sameness
from stridewise.results.numbers import byte_count, count, figure

NOTICEABLE = 1.1
"""How much faster or slower something has to be, unless a claim says how much."""


class Compared:
    """Arms by name, in order; the first is what the others' ratios are over."""

    def __init__(
        self,
        title: str,
        records: Mapping[str, Recorded],
        same: Mapping[str, Sameness | None],
        rounds: Rounds | None,
        refused: Mapping[str, Refused] | None = None,
    ) -> None:
        self.title = title
        self.records = records
        """Of an arm that was refused: what ran until then."""
        self.same = same
        self.refused = refused or {}
        """Arms that have no result and no time."""
        self._rounds = rounds
        self._at = {name: at for at, name in enumerate(name for name in records if name not in self.refused)}

    def ratio(self, arm: str, over: str) -> Ratio:
        """One arm's time over another's, with its interval. Neither may be refused."""
        if self._rounds is None:
            raise ValueError(f"{self.title}: these arms were not timed")
        found = self._rounds.ratio(self._at[arm], self._at[over])
        return Ratio(found.ratio, found.low, found.high)

    def faster(self, arm: str, than: str, by: float = NOTICEABLE) -> Prediction:
        """An arm takes less than 1/`by` of another's time."""
        text = f"{_code(arm)} is {_times(by)} faster than {_code(than)}"
        return self._timed(text, arm, than, lambda ratio: (ratio.high < 1 / by, ratio.low > 1 / by))

    def slower(self, arm: str, than: str, by: float = NOTICEABLE) -> Prediction:
        """An arm takes more than `by` times another's time."""
        text = f"{_code(arm)} is {_times(by)} slower than {_code(than)}"
        return self._timed(text, arm, than, lambda ratio: (ratio.low > by, ratio.high < by))

    def no_slower(self, arm: str, than: str, by: float = NOTICEABLE) -> Prediction:
        """An arm takes less than `by` times another's time."""
        text = f"{_code(arm)} is not {_times(by)} slower than {_code(than)}"
        return self._timed(text, arm, than, lambda ratio: (ratio.high < by, ratio.low > by))

    def copies(self, arm: str, least: int = 1) -> Prediction:
        """An arm makes copies that nobody asked for."""
        found = len(self.records[arm].hidden)
        what = "copies something" if least == 1 else f"makes at least {least} copies"
        return self.seen(arm, f"{_code(arm)} {what} that nobody asked for", found >= least, self._copied(arm))

    def copies_nothing(self, arm: str) -> Prediction:
        """An arm makes no copy that nobody asked for."""
        text = f"{_code(arm)} copies nothing that nobody asked for"
        return self.seen(arm, text, not self.records[arm].hidden, self._copied(arm))

    def agree(self, arm: str, *, bits: bool = False) -> Prediction:
        """An arm's results are those of the first: within rounding, or with `bits` bit by bit."""
        same = self.same.get(arm)
        first = next(iter(self.records))
        text = f"{_code(arm)} gives the results of {_code(first)}{' bit by bit' if bits else ''}"
        if same is None and arm not in self.refused:
            return Prediction(text, None, self.refusal(first) or "nothing to compare")
        came_true = same == "bit by bit" or (same == "within rounding" and not bits)
        return self.seen(arm, text, came_true, "" if same is None else _SAID[same])

    def seen(self, arm: str, text: str, came_true: bool, measured: object) -> Prediction:
        """Something else that is predicted of an arm: of one that was refused it was not seen."""
        refusal = self.refusal(arm)
        return Prediction(text, came_true and refusal is None, refusal or str(measured))

    def refusal(self, arm: str) -> str | None:
        """How an arm was refused, in words; None if it was not."""
        return f"{_code(arm)} {self.refused[arm].said}" if arm in self.refused else None

    def comparison(self) -> Comparison:
        """The rows."""
        if self._rounds is None:
            raise ValueError(f"{self.title}: these arms were not timed")
        first = next(iter(self._at))
        rows = (
            Arm(
                name,
                self._rounds.median_ns(at),
                None if name == first else self.ratio(name, first),
                self.records[name].by_kind,
                self.same.get(name),
            )
            for name, at in self._at.items()
        )
        return Comparison(self.title, tuple(rows), self._rounds.count)

    def _timed(self, text: str, arm: str, than: str, judge: Callable[[Ratio], tuple[bool, bool]]) -> Prediction:
        """A prediction about time; `judge` says of a ratio whether it came true, and whether it failed."""
        if arm in self.refused:
            return self.seen(arm, text, False, "")
        without = self.refusal(than)
        if without is not None:
            return Prediction(text, None, f"{without}, which takes no time to compare with")
        ratio = self.ratio(arm, than)
        digits = 2 if ratio.middle < 9.95 else 0
        said = f"it takes {ratio.middle:.{digits}f}x its time ({ratio.low:.{digits}f} to {ratio.high:.{digits}f})"
        came_true, failed = judge(ratio)
        if came_true or failed:
            return Prediction(text, came_true, said)
        return Prediction(text, None, f"{said}, which leaves it open", unclear=True)

    def _copied(self, arm: str) -> str:
        hidden = self.records[arm].hidden
        if not hidden:
            return "no copy"
        moved = sum(copy.bytes_moved or 0 for copy in hidden)
        return f"{count(len(hidden), 'copy', 'copies')}, {byte_count(moved)} moved"


_SAID: dict[Sameness, str] = {
    "bit by bit": "equal bit by bit",
    "within rounding": "equal within rounding, not bit by bit",
    "different": "different",
}


def _code(name: str) -> str:
    return name if "`" in name else f"`{name}`"


def _times(by: float) -> str:
    return f"at least {figure(by)}x"
