"""The sentence that a report is in: what is not known is not called fine."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.findings import Cost, Finding, Severity, Site
from stridewise.report.headline import FINE, folded, headline
from stridewise.results import Folded, Report, numbers

from . import samples

PART = "What layout costs is not known: the recording ended before its step was over. In what was recorded "


def part(report: Report) -> Report:
    return msgspec.structs.replace(report, totals=msgspec.structs.replace(report.totals, whole=False))


@pytest.mark.parametrize(
    ("fields", "fine", "said"),
    [
        ({}, True, "no tensor is copied because of it."),
        ({"share": None, "duration_ns": None}, True, "no tensor is copied because of it."),
        (
            {"copies": 1.0, "bytes_moved": 9600.0, "share": 0.001},
            True,
            "it costs 0.1 % of a step: 1 copy moves 9.6 kB.",
        ),
        (
            {"copies": 3.0, "bytes_moved": 9600.0, "share": 0.2},
            False,
            "it costs 20 % of a step: 3 copies move 9.6 kB.",
        ),
    ],
)
def test_a_part_of_a_step_is_not_called_fine(fields: dict[str, float | None], fine: bool, said: str) -> None:
    report = samples.report(**fields)
    assert headline(report).startswith(FINE) is fine
    assert headline(part(report)) == PART + said


def test_what_a_part_shows_to_be_wrong_is_said_as_of_a_whole() -> None:
    report = samples.report([samples.STREAM], copies=24.0, bytes_moved=31e6, share=0.03)
    assert headline(part(report)) == headline(report)
    assert not headline(report).startswith(FINE)


NOTE = samples.finding("SW114", severity="note", cost=samples.cost(1, 2.4, 0.1, 0.057))
SMALL = Folded(2, 0.001, samples.cost(2, 0.1, 0.01, 0.0004))


@pytest.mark.parametrize(
    ("findings", "folded", "share", "said"),
    [
        ([NOTE], Folded(0, 0.001, Cost()), 0.057, ", in 1 place that a note names."),
        ([NOTE], Folded(0, 0.001, Cost()), 0.004, ", in 1 place that a note names."),
        ([NOTE, NOTE], SMALL, 0.057, ", in 2 places that notes name and 2 more findings too small to list."),
        ([], SMALL, 0.057, ", spread over 2 findings too small to list."),
        ([], Folded(0, 0.001, Cost()), 0.057, ", and no finding is shown for it."),
    ],
)
def test_what_notes_are_shown_for_is_said_at_any_share(
    findings: list[Finding], folded: Folded, share: float, said: str
) -> None:
    report = samples.report(findings, folded=folded, copies=1.0, bytes_moved=2.4e6, share=share)
    assert headline(report) == f"Layout costs {numbers.share(share)} of a step: 1 copy moves 2.4 MB{said}"


def test_a_note_that_costs_nothing_leaves_a_program_fine() -> None:
    note = samples.finding("SW106", severity="note", cost=Cost())
    assert headline(samples.report([note], copies=1.0, bytes_moved=2.4e6, share=0.004)).startswith(FINE)


def test_several_copies_without_a_finding_are_them() -> None:
    assert headline(samples.report(copies=2.0, bytes_moved=2.4e6, share=0.2)).endswith("no finding is shown for them.")


# -- what it says of where the cost is, held against the findings ------------------------------------------------------

MIN_SHARE = 0.001


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    code = draw(st.sampled_from(["SW101", "SW101", "SW103", "SW110", "SW114"]))
    copies, megabytes = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    share = draw(st.sampled_from([0.0001, 0.0009, 0.002, 0.03]))
    severity: Severity = "note" if share < MIN_SHARE or draw(st.booleans()) else "warning"
    from_input = Site(expression="the input `mel`")
    where = {"site": from_input} if code == "SW101" and draw(st.booleans()) else {}
    return samples.finding(code, severity=severity, cost=samples.cost(copies, megabytes, 1.0, share), **where)


def report_of(found: list[Finding], left_out: int = 0) -> Report:
    folded = Folded(0, MIN_SHARE, Cost())
    folded = Folded(sum(map(folded.holds, found)), MIN_SHARE, Cost())
    copies, moved = (sum(getattr(f.cost, name) or 0 for f in found) for name in ("copies", "bytes_moved"))
    share = sum(finding.cost.share or 0 for finding in found)
    figures = {"copies": float(copies), "bytes_moved": float(moved), "share": share, "duration_ns": 1e6 * len(found)}
    return samples.report(found, folded=folded, left_out=left_out, **figures)


COUNTED = re.compile(r"(\d+) (?:expressions?|inputs?|other places?|places?|more findings?|findings?)\b")


@given(st.lists(findings(), min_size=1, max_size=8))
def test_places_are_as_many_as_findings_are_shown_and_folded(found: list[Finding]) -> None:
    said = headline(report := report_of(found))
    if said.startswith(FINE):
        assert not report.listed
    else:
        assert sum(map(int, COUNTED.findall(said))) == len(found)


@given(st.lists(findings(), min_size=1, max_size=8))
def test_expressions_are_called_the_cause_of_most_of_the_cost_only(found: list[Finding]) -> None:
    report = report_of(found)
    streams = sum(finding.cost.bytes_moved or 0 for finding in report.listed if finding.code == "SW101")
    most = 2 * streams > (report.totals.bytes_moved or 0)
    assert ("because" in headline(report)) is (most and not report.ok)


@given(st.lists(findings(), min_size=1, max_size=8), st.data())
def test_what_was_selected_is_told_from_the_whole_cost(found: list[Finding], data: st.DataObject) -> None:
    whole = report_of(found)
    shown = data.draw(st.lists(st.sampled_from(found), max_size=len(found) - 1, unique_by=id))
    kept = report_of(shown)
    part = msgspec.structs.replace(kept, totals=whole.totals, left_out=len(found) - len(shown))
    costs, _, which = headline(part).partition(" Of the findings")
    assert which == f" those that were selected are shown: {len(shown)} of {len(found)}."
    assert not COUNTED.search(costs)
    if not costs.startswith(FINE):
        assert headline(whole).startswith(costs.removesuffix("."))


def test_one_folded_finding_is_not_each_of_several() -> None:
    cost = samples.cost(1, 2.1, 0.2, 0.0003)
    one, two = (msgspec.structs.replace(samples.report(), folded=Folded(count, 0.001, cost)) for count in (1, 2))
    assert folded(one).startswith("1 finding below 0.1 % of a step: 1 copy, 2.1 MB, ")
    assert folded(two).startswith("2 findings below 0.1 % of a step each, together 1 copy, 2.1 MB, ")
