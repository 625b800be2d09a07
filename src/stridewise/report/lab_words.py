"""What the lab found, in words."""

from collections.abc import Iterable, Mapping

from stridewise.report.text import one_line
from stridewise.results import numbers
from stridewise.results.lab import Arm, ClaimVerdict, Lab, LabComparison, LabMachine, LabSide, Prediction, Ratio

VERDICTS: tuple[ClaimVerdict, ...] = ("holds", "holds in part", "does not hold", "cannot be tested here")
_SINGULAR = {"copies": "copy", "classes": "class"}
STYLES: Mapping[ClaimVerdict, str] = {
    "holds": "green",
    "holds in part": "yellow",
    "does not hold": "bold red",
    "cannot be tested here": "dim",
}


def mark(prediction: Prediction) -> str:
    """Whether a prediction came true: `yes`, `no`, `?` if times left it open, `–` if it was not tested."""
    if prediction.came_true is None:
        return "?" if prediction.unclear else "–"
    return "yes" if prediction.came_true else "no"


def headline(lab: Lab) -> str:
    """How many claims hold."""
    claims = lab.claims()
    if len(claims) == 1:
        return f"{claims[0].number} {claims[0].verdict}."
    counts = counted(claim.verdict for claim in claims)
    tested = sum(counts.values()) - counts["cannot be tested here"]
    if not sum(counts.values()):
        return "No claim was tested."
    if not tested:
        return f"{numbers.count(sum(counts.values()), 'claim')} could not be tested here."
    parts = [f"{counts['holds']} {'holds' if counts['holds'] == 1 else 'hold'}"]
    if counts["holds in part"]:
        parts.append(f"{counts['holds in part']} in part")
    parts.append(f"{counts['does not hold']} {'does' if counts['does not hold'] == 1 else 'do'} not")
    text = f"Of {numbers.count(tested, 'claim')} that could be tested, {', '.join(parts[:-1])} and {parts[-1]}"
    left = counts["cannot be tested here"]
    return f"{text}; {left} could not be tested here." if left else f"{text}."


def counted(verdicts: Iterable[ClaimVerdict | None]) -> dict[ClaimVerdict, int]:
    """How many claims have each verdict."""
    told = list(verdicts)
    return {verdict: told.count(verdict) for verdict in VERDICTS}


def machine(found: LabMachine) -> str:
    """What it was measured on, in a line."""
    where = f"{found.accelerator}, " if found.accelerator else ""
    details = "".join(f", {name} {version}" for name, version in found.details.items())
    return one_line(
        f"{where}{found.processor}, {numbers.count(found.cores, 'core')}, {numbers.count(found.threads, 'thread')}, "
        f"{found.system}, Python {found.python}, torch {found.torch}{details}"
    )


def ran(lab: Lab) -> str:
    """When, where and how, in a line."""
    how = "a quick run" if lab.quick else "a full run"
    return f"{lab.date}, {how} on {lab.device}, {numbers.figure(lab.seconds)} s, stridewise {lab.machine.stridewise}"


def sizes(values: Mapping[str, int]) -> str:
    """Sizes by name."""
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in values.items())


def ratio(found: Ratio) -> str:
    """`1.20x (1.15 to 1.26)`."""
    digits = 2 if found.high < 9.995 else 1 if found.high < 99.95 else 0
    return f"{found.middle:.{digits}f}x ({found.low:.{digits}f} to {found.high:.{digits}f})"


def copied(arm: Arm) -> str:
    """`2 hidden, 8.4 MB`: copies of a call, with the bytes that they move."""
    asked = sum(found.copies for kind, found in arm.copies.items() if kind == "explicit")
    parts = [f"{arm.hidden} hidden"] if arm.hidden else []
    parts += [f"{asked} asked for"] if asked else []
    return f"{' + '.join(parts)}, {numbers.byte_count(arm.bytes_moved)}" if parts else "no copy"


def counted_as(value: float, unit: str) -> str:
    """`13,356 layouts`, `12 MB`."""
    if unit == "B":
        return numbers.byte_count(value)
    return f"{numbers.figure(value)} {_SINGULAR.get(unit, unit.removesuffix('s')) if value == 1 else unit}"


def comparison_headline(comparison: LabComparison) -> str:
    """Where machines disagree."""
    runs, disputed = len(comparison.sides), comparison.disputed
    if runs == 1:
        return f"One run, {numbers.count(len(comparison.claims), 'claim')}."
    both = sum(
        sum(each not in (None, "cannot be tested here") for each in row.verdicts) > 1 for row in comparison.claims
    )
    if not both:
        return f"{runs} runs have no tested claim in common."
    claims = numbers.count(both, "claim")
    differ = sum(row.differs for row in comparison.arms)
    arms = f"; {differ} of {len(comparison.arms)} ratios of time differ by more than their intervals" if differ else ""
    if not disputed:
        return f"{runs} runs agree on all of {claims} that more than one tested{arms}."
    return f"{runs} runs disagree on {len(disputed)} of {claims} that more than one tested{arms}."


def how(side: LabSide) -> str:
    """When a run was made, on what, and what it lacks."""
    parts = [side.date, "quick" if side.quick else "full", side.device]
    parts += [] if side.whole else ["interrupted"]
    parts += [f"{numbers.count(side.failed, 'experiment')} ended early"] if side.failed else []
    return ", ".join(parts)
