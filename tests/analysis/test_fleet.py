"""Which files are unlike the others, and what is said of all of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.fleet import assemble_fleet, outliers
from stridewise.analysis.summary import Summary, failure, merge, summarize
from stridewise.findings import Cost
from stridewise.results import FleetFile, FleetRow

from ..report import samples


def row(rank: int, **fields: Any) -> FleetRow:
    (plain,) = summarize(samples.report(), f"rank{rank}.json").rows
    return msgspec.structs.replace(plain, **fields)


def odd(figure: str, values: list[float | None]) -> list[int | None]:
    found = outliers([row(rank, **{figure: value}) for rank, value in enumerate(values)])
    assert {outlier.figure for outlier in found} <= {figure}
    return [outlier.at.rank for outlier in found]


@pytest.mark.parametrize("figure", ["step_ns", "copies", "bytes_moved", "share", "layout_kernels_share"])
@given(value=st.none() | st.floats(0, 1e12), ranks=st.integers(1, 9))
def test_equal_ranks_are_alike(figure: str, value: float | None, ranks: int) -> None:
    assert odd(figure, [value] * ranks) == []


@pytest.mark.parametrize(
    ("figure", "values", "expected"),
    [
        # the others are equal: what matters decides
        ("copies", [2, 2, 2, 26], [3]),
        ("copies", [2, 2, 2, 2.4], []),
        ("copies", [1000, 1000, 1000, 1009], []),
        ("step_ns", [10e6, 10e6, 10e6, 10.4e6], []),
        ("step_ns", [10e6, 10e6, 10e6, 11e6], [3]),
        ("share", [0.02, 0.02, 0.02, 0.024], []),
        ("share", [0.02, 0.02, 0.02, 0.03], [3]),
        ("share", [0.0, 0.0, 0.0, 0.01], [3]),
        ("layout_kernels_share", [0.4, 0.4, 0.4, 0.1], [3]),
        # they are spread: so much more has to be odd
        ("step_ns", [10e6, 11e6, 12e6, 13e6, 14e6, 18e6], []),
        ("step_ns", [10e6, 11e6, 12e6, 13e6, 14e6, 30e6], [5]),
        # both sides, and more than one
        ("step_ns", [10e6, 10.1e6, 9.9e6, 10.2e6, 10e6, 2e6, 40e6], [5, 6]),
        # of two nobody knows
        ("copies", [2, 26], []),
        ("copies", [2, None, None, 26], []),
        # what was not measured is no figure
        ("copies", [2, None, 2, 26, 2], [3]),
        ("copies", [None, None, None], []),
        # two kinds of ranks, as pipeline stages are: none is odd
        ("copies", [2, 2, 2, 20, 20, 20], []),
    ],
)
def test_outliers(figure: str, values: list[float | None], expected: list[int]) -> None:
    assert odd(figure, values) == expected


def test_an_outlier_says_how_far_is_too_far() -> None:
    (found,) = outliers([row(rank, step_ns=value) for rank, value in enumerate([10.0, 11.0, 12.0, 13.0, 14.0, 30.0])])
    assert found.median == 12.5
    assert found.tolerance == pytest.approx(3.5 * 1.4826 * 1.5)


@given(st.lists(st.floats(0, 1e9), min_size=3, max_size=9), st.randoms())
def test_order_does_not_matter(values: list[float], random: Any) -> None:
    rows = [row(rank, step_ns=value) for rank, value in enumerate(values)]
    shuffled = random.sample(rows, len(rows))
    assert set(outliers(rows)) == set(outliers(shuffled))


def test_whole_runs_are_not_compared_with_steps() -> None:
    rows = [row(rank, copies=2.0) for rank in range(4)] + [row(4, copies=900.0, steps_found=False)]
    assert outliers(rows) == ()
    fleet = assemble_fleet(Summary(rows=tuple(rows)), min_share=0.001)
    assert fleet.figures["copies"].most == 2
    assert "No steps were found in 1 of 5 files" in fleet.notes[0].text


def test_shares_of_different_things_are_not_compared() -> None:
    rows = [row(rank, share=0.1, share_of="kernel-busy time") for rank in range(3)] + [row(3, share=0.9)]
    assert outliers(rows) == ()


def test_spreads_name_the_files_at_their_ends() -> None:
    rows = tuple(row(rank, copies=value) for rank, value in enumerate([4.0, 1.0, None, 9.0, 9.0]))
    fleet = assemble_fleet(Summary(rows=rows), min_share=0.001)
    spread = fleet.figures["copies"]
    assert (spread.measured, spread.median, spread.least, spread.most) == (4, 6.5, 1, 9)
    assert (spread.least_at, spread.most_at) == (FleetFile("rank1.json", 1), FleetFile("rank3.json", 3))
    assert "layout_kernels_share" not in fleet.figures


def test_ok_is_of_every_file() -> None:
    def fleet(*severities: Any) -> bool:
        ones = [
            summarize(samples.report([samples.finding(severity=severity)]), f"rank{rank}")
            for rank, severity in enumerate(severities)
        ]
        return assemble_fleet(merge(ones), min_share=0.001).ok

    assert fleet("note", "note")
    assert not fleet("note", "warning")
    assert not fleet("error")
    assert assemble_fleet(merge([summarize(samples.report(), "a"), failure("b", "no")]), min_share=0.001).ok


def test_findings_come_costliest_first_over_all_files_and_errors_before_them() -> None:
    def finding(name: str, ns: float, severity: str = "warning") -> Any:
        return samples.finding(fingerprint=name, cost=Cost(1, 1, ns), severity=severity)

    reports = [[finding("rare", 50)], [finding("common", 30)], [finding("common", 30), finding("wrong", 0, "error")]]
    ones = [summarize(samples.report(found), f"rank{rank}") for rank, found in enumerate(reports)]
    fleet = assemble_fleet(merge(ones), min_share=0.001)
    assert [found.fingerprint for found in fleet.findings] == ["wrong", "common", "rare"]


@pytest.mark.parametrize(
    ("ranks", "missing"),
    [
        ([0, 1, 3], "Of ranks 0 to 3 there is no file of rank 2."),
        ([0, 1, 2], None),
        ([5, 6], None),
        ([0, 700], None),  # two that were picked
        ([], None),
    ],
)
def test_missing_ranks_are_named(ranks: list[int], missing: str | None) -> None:
    ones = [summarize(samples.report(), f"rank{rank}.json") for rank in ranks]
    notes = [note.text for note in assemble_fleet(merge(ones), min_share=0.001).notes]
    assert notes == ([missing] if missing else [])


def test_a_rank_that_could_not_be_read_is_not_missing() -> None:
    ones = [summarize(samples.report(), f"rank{rank}.json") for rank in (0, 2)]
    assert assemble_fleet(merge([*ones, failure("rank1.json", "no")]), min_share=0.001).notes == ()
