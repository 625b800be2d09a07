"""What the lab found: claims about memory layout, what was measured of each, and whether it holds."""

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from stridewise.results.report import Kind
from stridewise.results.schema import SCHEMA_VERSION

# Files of others are read: what is no such number is refused there.
Positive = Annotated[float, Meta(gt=0, le=1e15)]
Count = Annotated[int, Meta(ge=0, le=10**15)]
Number = Annotated[str, Meta(pattern=r"^C[1-9][0-9]{0,3}$")]
ClaimVerdict = Literal["holds", "holds in part", "does not hold", "cannot be tested here"]
Sameness = Literal["bit by bit", "within rounding", "different"]
"""How an arm's results compare with those of the first arm."""

RULE = (
    "A claim predicts what is seen when it is tested. It holds if every prediction that was tested came true, does not "
    "hold if none did, and holds in part otherwise. A claim none of whose predictions could be tested cannot be tested "
    "here. A prediction about time came true, or failed, only if the whole 95 % interval of the ratio says so; else it "
    "is left open, and counts as not tested."
)


class Ratio(Struct, frozen=True):
    """One arm's time over another's: the middle, and the 95 % interval."""

    middle: Positive
    low: Positive
    high: Positive


class Copied(Struct, frozen=True):
    """The copies of one kind in one call of an arm."""

    copies: Count
    bytes_moved: Count


class Arm(Struct, frozen=True):
    """One way to write the same thing, measured."""

    name: str
    median_ns: Positive
    """Of one call, over samples."""
    ratio: Ratio | None
    """Its time over that of the first arm, paired by round; None for the first arm itself."""
    copies: dict[Kind, Copied]
    """What one call copies, as the recorder saw it."""
    same: Sameness | None
    """None for the first arm, and where there is nothing to compare."""

    @property
    def hidden(self) -> int:
        """How many copies nobody asked for."""
        return sum(found.copies for kind, found in self.copies.items() if kind != "explicit")

    @property
    def bytes_moved(self) -> int:
        """By all of its copies."""
        return sum(found.bytes_moved for found in self.copies.values())


class Comparison(Struct, frozen=True):
    """Arms timed against each other: every round takes a sample of each, in an order that a coin says."""

    title: str
    arms: Annotated[tuple[Arm, ...], Meta(min_length=1)]
    rounds: Count


class Counts(Struct, frozen=True):
    """Counted things, beside each other."""

    title: str
    unit: str
    """`copies`, `kernels`, `bytes`, …"""
    values: dict[str, Annotated[float, Meta(ge=-1e15, le=1e15)]]


class Prediction(Struct, frozen=True):
    """What has to be seen if a claim is true."""

    text: str
    came_true: bool | None
    """None: it was not tested."""
    measured: str
    """What was seen, with its figures; of one that was not tested, why."""
    unclear: bool = False
    """It was tested, and the interval of the ratio leaves it open: it counts as not tested."""


class ClaimResult(Struct, frozen=True):
    """A claim, and what became of it."""

    number: Number
    """In the list of the article's claims: `C58`."""
    section: str
    """Of the article: `3.2`."""
    text: str
    correct: str
    """The right statement."""
    verdict: ClaimVerdict
    predictions: tuple[Prediction, ...]


class ExperimentResult(Struct, frozen=True):
    """One experiment, run."""

    name: str
    title: str
    method: str
    sizes: dict[str, Count]
    claims: tuple[ClaimResult, ...]
    comparisons: tuple[Comparison, ...]
    counts: tuple[Counts, ...]
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    failed: str | None = None
    """Why it ended early: predictions that it had not come to were not tested."""


class LabMachine(Struct, frozen=True):
    """What it was measured on."""

    processor: str
    cores: Count
    """That this process may use."""
    threads: Count
    """Of torch."""
    system: str
    python: str
    torch: str
    stridewise: str
    details: dict[str, str] = {}
    """Libraries that kernels come from, and their versions: `oneDNN`, `CUDA`, `cuDNN`, …"""
    accelerator: str | None = None
    """The GPU that it ran on; None on the CPU."""


class Lab(Struct, frozen=True):
    """What a run of the lab found."""

    machine: LabMachine
    device: str
    """`cpu` or `cuda`."""
    quick: bool
    """Smaller sizes and fewer rounds."""
    date: str
    """Of the run, as ISO 8601 writes it."""
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    experiments: tuple[ExperimentResult, ...]
    notes: tuple[str, ...] = ()
    whole: bool = True
    """False: it was interrupted, and not all that was asked for was run."""
    rule: str = RULE
    schema_version: int = SCHEMA_VERSION

    def claims(self) -> tuple[ClaimResult, ...]:
        """Every claim once, in the article's order; of one that several experiments test, all predictions together."""
        found: dict[str, list[ClaimResult]] = {}
        for experiment in self.experiments:
            for claim in experiment.claims:
                found.setdefault(claim.number, []).append(claim)
        return tuple(_together(found[number]) for number in sorted(found, key=claim_order))


def verdict(predictions: Iterable[Prediction]) -> ClaimVerdict:
    """What `RULE` says."""
    tested = [prediction.came_true for prediction in predictions if prediction.came_true is not None]
    if not tested:
        return "cannot be tested here"
    return "holds" if all(tested) else "holds in part" if any(tested) else "does not hold"


def claim_order(number: str) -> int:
    """Where a claim stands in the list."""
    return int(number.removeprefix("C"))


def _together(claims: list[ClaimResult]) -> ClaimResult:
    if len(claims) == 1:
        return claims[0]
    predictions = tuple(prediction for claim in claims for prediction in claim.predictions)
    first = claims[0]
    correct = " ".join(dict.fromkeys(claim.correct for claim in claims))
    return ClaimResult(first.number, first.section, first.text, correct, verdict(predictions), predictions)


# -------------------------------------------------------------------------------------------------------- side by side


class LabSide(Struct, frozen=True):
    """One of the runs that are laid side by side."""

    name: str
    """Of its file, without the ending."""
    machine: LabMachine
    device: str
    quick: bool
    date: str
    whole: bool = True
    failed: Count = 0
    """How many experiments ended early."""


class ClaimRow(Struct, frozen=True):
    """A claim, and what each run says of it."""

    number: str
    section: str
    text: str
    correct: str
    verdicts: tuple[ClaimVerdict | None, ...]
    """None where a run didn't test it at all."""


class ArmRow(Struct, frozen=True):
    """An arm, and its time over that of its comparison's first arm in each run."""

    experiment: str
    comparison: str
    arm: str
    over: str
    """The first arm."""
    ratios: tuple[Ratio | None, ...]
    """None where a run hasn't this arm."""
    differs: bool = False
    """Of two runs with the same sizes the intervals don't meet."""


class LabComparison(Struct, frozen=True):
    """Runs of the lab on several machines, side by side."""

    sides: tuple[LabSide, ...]
    claims: tuple[ClaimRow, ...]
    arms: tuple[ArmRow, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def disputed(self) -> tuple[ClaimRow, ...]:
        """Claims of which runs that tested them say different things."""
        return tuple(row for row in self.claims if len(set(row.verdicts) - {None, "cannot be tested here"}) > 1)
