"""What many files say together, in words and figures."""

from collections import Counter
from collections.abc import Sequence

from stridewise.findings import Cost
from stridewise.report.headline import FINE, NOTICEABLE
from stridewise.report.text import one_line
from stridewise.results import Fleet, FleetFigure, FleetFile, FleetFinding, Outlier, Spread, numbers

FIGURES: dict[FleetFigure, str] = {
    "step_ns": "step",
    "copies": "copies",
    "bytes_moved": "moved",
    "duration_ns": "in copies",
    "share": "share",
    "layout_kernels_share": "kernels",
}
"""Columns of the table, in order."""


def headline(fleet: Fleet) -> str:
    """Say in one sentence what layout costs on all ranks, and how far they are apart."""
    names = Names(fleet)
    wrong = sum(bool(row.errors) for row in fleet.rows)
    if wrong:
        return f"Layout makes results wrong on {of(wrong, len(fleet.rows), names.noun)}."
    share, copies = fleet.figures.get("share"), fleet.figures.get("copies")
    if copies is None:
        return f"{_kernels_cost(fleet.figures.get('layout_kernels_share'), len(fleet.rows), names)}."
    whole = all_of(copies.measured, names.noun)
    unknown = len(fleet.rows) - copies.measured
    rest = f" Nothing is known of {numbers.count(unknown, names.noun)}." if unknown else ""
    return f"{_costs(fleet, copies, share, whole, names)}.{rest}"


def _kernels_cost(share: Spread | None, rows: int, names: "Names") -> str:
    """What the names of kernels tell where no rank was recorded with strides."""
    if share is None or not share.most:
        return f"What layout costs is not known of {all_of(rows, names.noun)}"
    least, most = numbers.share(share.least), numbers.share(share.most)
    range_ = most if least == most else f"{least} to {most}"
    whole = all_of(share.measured, names.noun)
    return f"On {whole} layout costs at least {range_} of kernel-busy time, in kernels that only change layout"


def _costs(fleet: Fleet, copies: Spread, share: Spread | None, whole: str, names: "Names") -> str:
    if not copies.most:
        return f"{FINE} on {whole}: no tensor is copied because of it"
    if share is None:
        least, most = (numbers.figure(value) for value in (copies.least, copies.most))
        if least == most:
            return f"Layout costs {numbers.count(copies.most, 'copy', 'copies')} {period(fleet)} on {whole}"
        where = names.name(copies.most_at)
        return f"Layout costs {least} to {most} copies {period(fleet)} on {whole}, the most on {where}"
    least, most = (numbers.share(value) for value in (share.least, share.most))
    costs = f"{FINE} on {whole}: it costs" if fleet.ok and share.most < NOTICEABLE else f"On {whole} layout costs"
    if least == most:
        return f"{costs} {most} of {share_of(fleet)}"
    return f"{costs} {least} to {most} of {share_of(fleet)}, the most on {names.name(share.most_at)}"


def apart(outlier: Outlier, fleet: Fleet) -> str:
    """In what a file is unlike the others."""
    value, middle = (figure_text(outlier.figure, number) for number in (outlier.value, outlier.median))
    what = {
        "step_ns": f"a step of {value}",
        "copies": f"{numbers.count(outlier.value, 'copy', 'copies')} {period(fleet)}",
        "bytes_moved": f"{value} moved {period(fleet)}",
        "share": f"{value} of {share_of(fleet)} in copies",
        "layout_kernels_share": f"{value} of kernel-busy time in layout kernels",
    }[outlier.figure]
    return f"{what} (median {middle})"


def spread_over(finding: FleetFinding, fleet: Fleet, names: "Names") -> str:
    """On how many files a finding is, and on which, if they are few."""
    if finding.files == len(fleet.rows):
        return all_of(finding.files, names.noun)
    whole = of(finding.files, len(fleet.rows), names.noun)
    if finding.files > len(finding.first_files):
        return whole
    return f"{whole}: {names.listed(finding.first_files)}"


def cost_text(finding: FleetFinding, fleet: Fleet, names: "Names") -> str:
    """What it costs on average, and where most."""
    wholes = {row.at: row.share_of for row in fleet.rows}
    whole = wholes.get(finding.most_at, _whole(fleet))
    each = period(fleet)
    # Shares of a step's time and of kernels' have no mean.
    mean = f"{numbers.cost(finding.mean)} {each}{_of_what(finding.mean, whole) if len({*wholes.values()}) == 1 else ''}"
    most = f"{numbers.cost(finding.most)} {each}{_of_what(finding.most, whole)}"
    if finding.files == 1:
        return mean
    if mean == most:
        return f"{mean}, on each of them"
    return f"{mean}, on average; {most} on {names.name(finding.most_at)}"


def _of_what(cost: Cost, whole: str) -> str:
    return "" if cost.share is None else f": {numbers.share(cost.share)} of {whole}"


def measured(fleet: Fleet) -> str:
    """What the figures were measured on."""
    facts = []
    for key, values in fleet.environment.items():
        shown = [one_line(value) + (f" on {files}" if len(values) > 1 else "") for value, files in values.items()]
        facts.append(f"{one_line(key)} {', '.join(shown[:4])}{' …' if len(shown) > 4 else ''}")
    code = fleet.listed[0].code if fleet.listed else None
    rule = f" What a code means: stridewise rule {code}." if code else ""
    files = numbers.count(len(fleet.rows), "file")
    return f"Measured: {'; '.join([files, *facts])}.{rule} One file in full: stridewise trace FILE."


class Names:
    """What files are called: by rank where no two have the same, else by file."""

    def __init__(self, fleet: Fleet) -> None:
        ranks = Counter(row.at.rank for row in fleet.rows)
        self._by_rank = None not in ranks and all(count == 1 for count in ranks.values())
        self.noun = "rank" if self._by_rank else "file"

    def name(self, at: FleetFile) -> str:
        """Of one file."""
        return f"rank {at.rank}" if self._by_rank else one_line(at.file)

    def listed(self, files: Sequence[FleetFile]) -> str:
        """Of several."""
        if self._by_rank and len(files) > 1:
            return "ranks " + ", ".join(str(at.rank) for at in files)
        return ", ".join(map(self.name, files))

    def count(self, number: int) -> str:
        """How many."""
        return numbers.count(number, self.noun)


def all_of(number: int, noun: str) -> str:
    """`1 rank`, `both ranks`, `all 64 ranks`."""
    if number == 2:
        return f"both {noun}s"
    return f"all {numbers.count(number, noun)}" if number > 1 else numbers.count(number, noun)


def of(some: int, whole: int, noun: str) -> str:
    """`2 of 8 ranks`, and of all of them `8 ranks`."""
    return numbers.count(whole, noun) if some == whole else f"{some} of {numbers.count(whole, noun)}"


def period(fleet: Fleet) -> str:
    """What figures are for, behind them."""
    return "a step" if any(row.steps_found for row in fleet.rows) else "in this run"


def _whole(fleet: Fleet) -> str:
    """What shares are of, on most ranks."""
    return Counter(row.share_of for row in fleet.rows).most_common(1)[0][0]


def share_of(fleet: Fleet) -> str:
    """What shares are of."""
    each = "a step" if any(row.steps_found for row in fleet.rows) else "this run"
    return each if _whole(fleet) == "step time" else f"{each}'s {_whole(fleet)}"


def figure_text(figure: FleetFigure, value: float) -> str:
    """A figure with its unit."""
    if figure in ("step_ns", "duration_ns"):
        return numbers.duration(value)
    if figure == "bytes_moved":
        return numbers.byte_count(value)
    return numbers.figure(value) if figure == "copies" else numbers.share(value)
