"""Summaries of files merge to the same whatever the order, and say about each file what its report says."""

from functools import reduce
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.summary import Summary, failure, mean_of, merge, rank_in, summarize
from stridewise.findings import Cost, Site
from stridewise.results import Report

from ..report import samples

FIGURES = st.floats(0, 1e15, allow_nan=False)
OPTIONAL = st.none() | FIGURES
COSTS = st.builds(Cost, copies=FIGURES, bytes_moved=OPTIONAL, duration_ns=OPTIONAL, share=st.none() | st.floats(0, 1))
FINDINGS = st.builds(
    lambda number, severity, message, cost, count, inferred: samples.finding(
        fingerprint=f"{number:016}", severity=severity, message=message, cost=cost, count=count, inferred=inferred
    ),
    st.integers(0, 3),
    st.sampled_from(["error", "warning", "note"]),
    st.sampled_from(["one", "another"]),
    COSTS,
    st.integers(1, 9),
    st.booleans(),
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    findings = draw(st.lists(FINDINGS, max_size=4, unique_by=lambda finding: finding.fingerprint))
    names = ("step_ns", "copies", "bytes_moved", "duration_ns", "share")
    totals = {name: draw(OPTIONAL) for name in names}
    notes = tuple(draw(st.lists(st.integers(0, 40).map(lambda number: f"note {number}"), max_size=25)))
    environment = draw(st.dictionaries(st.sampled_from(["torch", "device"]), st.sampled_from(["a", "b"])))
    return samples.report(findings, notes=notes, environment=environment, steps_found=draw(st.booleans()), **totals)


@st.composite
def several(draw: st.DrawFn, groups: int) -> list[Summary]:
    """Summaries of one file or many, no file in two of them."""
    names = draw(st.lists(st.integers(0, 30), max_size=3 * groups, unique=True))
    ones = [
        failure(f"rank{name}.json", "no") if draw(st.integers(0, 5)) == 0 else summarize(draw(reports()), f"f{name}_x")
        for name in names
    ]
    return [merge(ones[group::groups]) for group in range(groups)]


@given(several(3))
def test_merging_is_associative(summaries: list[Summary]) -> None:
    a, b, c = summaries
    whole = merge([a, b, c])
    assert merge([merge([a, b]), c]) == whole
    assert merge([a, merge([b, c])]) == whole


@given(several(2))
def test_merging_is_commutative(summaries: list[Summary]) -> None:
    a, b = summaries
    assert merge([a, b]) == merge([b, a])
    # Equal when encoded, too: a dict that was filled in another order is equal and reads otherwise.
    assert msgspec.json.encode(merge([a, b])) == msgspec.json.encode(merge([b, a]))


@given(several(1))
def test_merging_has_an_identity(summaries: list[Summary]) -> None:
    (a,) = summaries
    assert merge([a, Summary()]) == merge([Summary(), a]) == merge([a]) == a
    assert merge([]) == Summary()


@given(several(2))
def test_a_summary_survives_its_encoding(summaries: list[Summary]) -> None:
    whole = merge(summaries)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Summary) == whole


@given(st.lists(st.tuples(FIGURES, OPTIONAL), min_size=1, max_size=9))
def test_a_mean_is_over_the_files_that_measured(costs: list[tuple[float, float | None]]) -> None:
    ones = [
        summarize(samples.report([samples.finding(cost=Cost(copies, None, time))]), f"rank{number}.json")
        for number, (copies, time) in enumerate(costs)
    ]
    (found,) = reduce(lambda a, b: merge([a, b]), ones).findings
    mean = mean_of(found)
    times = [time for _, time in costs if time is not None]
    assert mean.copies == pytest.approx(sum(copies for copies, _ in costs) / len(costs), rel=1e-12, abs=1e-8)
    assert mean.bytes_moved is None
    assert mean.duration_ns == (pytest.approx(sum(times) / len(times), rel=1e-12, abs=1e-8) if times else None)
    assert found.finding.files == len(costs)
    assert found.finding.most.duration_ns == max(times, default=None)


def test_a_finding_is_worded_as_where_it_costs_most_and_as_severe_as_anywhere() -> None:
    def one(rank: int, **fields: Any) -> Summary:
        return summarize(samples.report([samples.finding(**fields)]), f"rank{rank}.json")

    whole = merge(
        [
            one(10, message="ten", cost=Cost(3, 30, 5.0, 0.1), severity="note", count=2),
            one(2, message="two", cost=Cost(1, 10, 9.0, 0.2), severity="warning"),
            one(9, message="nine", cost=Cost(2, 20, 1.0, 0.0), severity="error", inferred=True),
        ]
    )
    (found,) = whole.findings
    finding = found.finding
    assert (finding.message, finding.most_at.rank, finding.most.duration_ns) == ("two", 2, 9.0)
    assert (finding.severity, finding.count, finding.inferred) == ("error", 2, True)
    assert [at.rank for at in finding.first_files] == [2, 9, 10]
    assert mean_of(found) == Cost(2, 20, 5.0, 0.1)


def test_findings_without_a_fingerprint_are_told_apart_by_place() -> None:
    findings = [samples.finding(fingerprint="", site=Site("a.py", line)) for line in (1, 2)]
    assert len(summarize(samples.report(findings), "rank0.json").findings) == 2


def test_what_many_files_share_does_not_grow() -> None:
    report = msgspec.structs.replace(samples.RICH, notes=tuple(f"note {number}" for number in range(99)))
    ones = [summarize(report, f"rank{rank}.json") for rank in range(200)]
    whole = msgspec.json.encode(merge(ones))
    rows = msgspec.json.encode(merge(ones).rows)
    assert len(whole) - len(rows) < 2 * len(msgspec.json.encode(ones[0]))
    assert len(rows) / 200 < 600


@pytest.mark.parametrize(
    ("file", "rank"),
    [
        ("rank3.json.gz", 3),
        ("runs/a/rank_12.json", 12),
        ("Rank-007.json", 7),
        ("worker3.1700000000000.pt.trace.json", 3),
        ("trace_5.json", 5),
        ("run_2/trace_5.json", 5),
        ("rank4/trace.json", 4),
        ("rank1/node/trace.json.gz", 1),
        ("rank1/rank2.json", 2),
        ("s3://bucket/run/rank63.json.gz", 63),
        ("C:\\runs\\rank8.json", 8),
        ("profile_step_100.json", None),
        ("epoch_3.json", None),
        ("a100_alexnet.json.gz", None),
        ("trace.json", None),
        ("trank.json", None),
        ("rank1234567890.json", None),
    ],
)
def test_ranks_in_names(file: str, rank: int | None) -> None:
    assert rank_in(file) == rank


def test_what_the_trace_says_goes_before_the_name() -> None:
    class Ranked(Report, frozen=True):
        rank: int | None = None

    report = samples.report()
    fields = {field: getattr(report, field) for field in report.__struct_fields__}
    (row,) = summarize(Ranked(**{**fields, "rank": 5}), "rank1.json").rows
    assert row.at.rank == 5
