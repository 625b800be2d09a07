"""What a comparison promises, for any two reports: nothing against itself, mirrored when swapped, judged per step."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.diff import compare
from stridewise.findings import Cost, Finding, Payer, Site
from stridewise.results import Delta, Diff, Report

from ..report import pairs
from ..report.pairs import cost, finding, payer, report

MIRRORED = {"appeared": "went", "went": "appeared", "grew": "shrank", "shrank": "grew"}

figures = st.integers(0, 60).map(lambda thirds: thirds / 3)
costs = st.builds(
    Cost,
    figures,
    st.none() | figures.map(lambda figure: figure * 1e6),
    st.none() | figures,
    st.none() | st.floats(0, 1),
)
sites = st.builds(
    Site,
    file=st.sampled_from(["model.py", "other.py", None]),
    line=st.integers(1, 3),
    function=st.sampled_from(["forward", "step", None]),
    module=st.sampled_from(["encoder", None]),
    expression=st.sampled_from(["f(x)", "g(x)", None]),
)
payers = st.builds(Payer, sites, st.sampled_from(["torch.add", "torch.mul"]), st.none(), costs)
findings = st.builds(
    Finding,
    code=st.sampled_from(["SW101", "SW103", "SW201"]),
    title=st.just("title"),
    severity=st.sampled_from(["error", "warning", "note"]),
    message=st.just("message"),
    count=st.integers(1, 3),
    site=sites,
    origin=st.none(),
    carriers=st.just(()),
    payers=st.lists(payers, max_size=2).map(tuple),
    cost=costs,
    fingerprint=st.sampled_from(["", "a", "b", "c"]),
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    found = draw(st.lists(findings, max_size=4))
    return draw(
        st.sampled_from(
            [
                report(found),
                report(found, steps=5),
                report(found + found, share_of="kernel-busy time"),
                report(found, copies=100.0),
                report(found, copies=None, bytes_moved=None, duration_ns=None, share=None),
                report(found, kernels=(pairs.kernel("transpose", 3 * len(found), 1),)),
            ]
        )
    )


def mirrored(diff: Diff) -> Diff:
    """The same comparison, as it reads from the other side; rows in an order of their own."""

    def turn(value):
        if isinstance(value, Delta):
            return Delta(value.new, value.old, value.delta and -value.delta)
        if isinstance(value, msgspec.Struct):
            fields = {name: turn(getattr(value, name)) for name in value.__struct_fields__}
            fields |= {"trend": MIRRORED.get(fields["trend"], fields["trend"])} if "trend" in fields else {}
            return msgspec.structs.replace(value, **fields)
        return tuple(map(turn, value)) if isinstance(value, tuple) else value

    return turn(diff)


def rows(diff: Diff) -> Counter[str]:
    """What must be the same from both sides: all but the sites, which are those of NEW."""
    shown = [(row.trend, row.code, row.count, row.cost) for row in diff.findings]
    paid = [(row.trend, payer.trend, payer.op, payer.cost) for row in diff.findings for payer in row.payers]
    kernels = [(row.trend, row.name, row.count, row.duration_ns) for row in diff.kernels]
    return Counter(map(repr, [*shown, *paid, *kernels, diff.totals]))


@given(reports())
def test_against_itself_nothing_differs(one):
    diff = compare(one, one)
    assert diff.ok
    assert {row.trend for row in diff.findings + diff.kernels} <= {"same", "unknown"}
    assert diff.totals.trend == ("unknown" if one.totals.copies is None else "same")
    assert len(diff.findings) == len(one.findings)


@given(reports(), reports())
def test_swapped_it_is_mirrored(old, new):
    assert rows(mirrored(compare(old, new))) == rows(compare(new, old))


@given(reports(), reports())
def test_every_finding_is_in_one_row(old, new):
    diff = compare(old, new)
    assert sum(row.old_severity is not None for row in diff.findings) == len(old.findings)
    assert sum(row.new_severity is not None for row in diff.findings) == len(new.findings)
    assert all(row.old_severity or row.new_severity for row in diff.findings)


@given(reports(), reports())
def test_what_got_worse_is_what_grew(old, new):
    diff = compare(old, new)
    for name in ("copies", "bytes_moved"):
        delta = getattr(diff.totals.cost, name).delta
        if name in diff.worse:
            assert delta > 0
        elif old.totals.steps == new.totals.steps:
            assert delta is None or delta <= 0
    assert ("hazards" in diff.worse) == any(
        row.new_severity == "error" and row.trend in ("appeared", "grew") for row in diff.findings
    )
    assert diff.ok == (not diff.worse)


@given(reports(), reports())
def test_what_was_not_measured_is_never_zero(old, new):
    for row in compare(old, new).findings:
        for delta in (row.cost.copies, row.cost.bytes_moved, row.cost.duration_ns):
            assert (delta.delta is None) == (delta.old is None or delta.new is None)
        if old.totals.copies is None and row.old_severity is None:
            assert row.trend == "unknown"
            assert row.cost.copies.old is None


# ------------------------------------------------------------------------------------------------------------- matching


def only(old: Finding, new: Finding) -> str:
    (row,) = compare(report([old]), report([new])).findings
    return row.trend


@pytest.mark.parametrize(
    "change",
    [
        {"line": 99},
        {"line": 99, "fingerprint": "another frame inside torch"},
        {"fingerprint": "x", "function": "Encoder.encode"},
        {"fingerprint": "x", "file": "encoder.py"},
        {"fingerprint": "x", "payers": (payer("F.gelu(x)", 3, cost(12, 31), "gelu"),)},
        {"fingerprint": "x", "expression": "self.embed(mel).transpose(1,\n    2)"},
    ],
    ids=["line", "fingerprint", "function", "file", "payer", "line breaks"],
)
def test_what_moved_is_the_same(change):
    assert only(finding(), finding(**change)) == "same"


@pytest.mark.parametrize(
    "change",
    [
        {"code": "SW103"},
        {"fingerprint": "x", "expression": "mel.t()"},
        {"fingerprint": "x", "file": "encoder.py", "function": "encode"},
        {"fingerprint": "", "file": None, "function": None, "expression": None, "payers": ()},
    ],
    ids=["code", "expression", "file and function", "no place"],
)
def test_what_is_another_is_not(change):
    diff = compare(report([finding()]), report([finding(**change)]))
    assert sorted(row.trend for row in diff.findings) == ["appeared", "went"]
    assert diff.ok


def test_one_place_twice_is_matched_once_each():
    twice = [finding(paid=cost(3, 1)), finding(paid=cost(9, 4))]
    diff = compare(report(twice), report([*reversed(twice), finding(paid=cost(1, 1))]))
    assert [row.trend for row in diff.findings] == ["appeared", "same", "same"]


def test_order_does_not_matter():
    one, other = report([pairs.STREAM, pairs.INPUT]), report([pairs.INPUT, pairs.STREAM])
    assert compare(one, other).findings == compare(one, one).findings


def test_rows_tell_which_call_pays_more():
    row = compare(pairs.BEFORE, pairs.AFTER).findings[0]
    assert (row.trend, row.cost.copies) == ("grew", Delta(12, 15, 3))
    assert [(paid.trend, paid.site.expression) for paid in row.payers] == [
        ("grew", "self.norm(x)"),
        ("same", "self.probe(x)"),
    ]


def test_what_grew_most_comes_first():
    old = [finding(expression=name, paid=cost(5, 5), fingerprint=name) for name in "abc"]
    new = [finding(expression=n, paid=cost(5, m), fingerprint=n) for n, m in (("a", 6), ("b", 4), ("c", 9))]
    assert [row.site.expression for row in compare(report(old), report(new)).findings] == ["c", "a", "b"]


# -------------------------------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "worse"),
    [
        (cost(100, 10), cost(105, 10), 0.05, ()),
        (cost(100, 10), cost(106, 10), 0.05, ("copies",)),
        (cost(100, 10), cost(100, 10.5), 0.05, ()),
        (cost(100, 10), cost(90, 10.6), 0.05, ("bytes_moved",)),
        (cost(100, 10), cost(101, 10.1), 0.0, ("copies", "bytes_moved")),
        (cost(0, 0), cost(1, 1), 0.5, ("copies", "bytes_moved")),
        (cost(100, 10, 1, 0.1), cost(100, 10, 9, 0.9), 0.0, ()),
    ],
    ids=["within", "copies", "bytes within", "bytes", "no tolerance", "from nothing", "time"],
)
def test_tolerance(old, new, tolerance, worse):
    diff = compare(report([finding(paid=old)]), report([finding(paid=new)]), tolerance=tolerance)
    assert (diff.worse, diff.ok) == (worse, not worse)


def test_no_wrong_result_makes_up_for_another():
    other = finding("SW201", 3, Cost(), severity="error", expression="other(x)", fingerprint="other")
    diff = compare(report([pairs.WRONG]), report([other]), tolerance=1.0)
    assert diff.totals.hazards == Delta(1, 1, 0)
    assert diff.worse == ("hazards",)


def test_a_warning_that_becomes_an_error_is_a_hazard():
    diff = compare(report([finding()]), report([finding(severity="error")]))
    assert (diff.worse, diff.findings[0].trend) == (("hazards",), "grew")
    assert compare(report([finding()]), report([finding(severity="note")])).findings[0].trend == "same"


def test_more_copies_that_move_less_are_neither_growth_nor_loss():
    diff = compare(report([finding(paid=cost(2, 8))]), report([finding(paid=cost(3, 6))]))
    assert (diff.findings[0].trend, diff.totals.trend, diff.worse) == ("changed", "changed", ("copies",))


def test_a_finding_that_costs_nothing_itself_counts():
    old, new = (finding(paid=Cost(), count=count) for count in (2, 3))
    diff = compare(report([old]), report([new]))
    assert (diff.findings[0].trend, diff.ok) == ("grew", True)


# ---------------------------------------------------------------------------------------------------------------- steps


def recorded(steps: int, once: int = 0, every: int = 7) -> Report:
    """A program with `every` copies of 1 MB in a step, and others of 1 MB that happen once in a recording."""
    copies = every + once / steps
    return report([finding(paid=cost(copies, copies))], steps=steps)


@pytest.mark.parametrize("once", [0, 1, 2])
@pytest.mark.parametrize("steps", [1, 2, 5, 7])
def test_the_number_of_steps_does_not_matter(steps, once):
    for old, new in ((recorded(3, once), recorded(steps, once)), (recorded(steps, once), recorded(3, once))):
        diff = compare(old, new)
        assert diff.ok or once * abs(1 / 3 - 1 / steps) >= 1
        assert diff.totals.trend == "same" or not diff.ok or diff.totals.trend == "shrank"


def test_a_copy_in_every_step_counts_whatever_the_number_of_steps():
    assert compare(recorded(3), recorded(5, every=8)).worse == ("copies", "bytes_moved")
    assert compare(recorded(3), recorded(3, once=1)).worse == ("copies", "bytes_moved")


def test_more_bytes_in_as_many_copies_count_whatever_the_number_of_steps():
    new = report([finding(paid=cost(7, 7.5))], steps=5)
    assert compare(recorded(3), new).worse == ("bytes_moved",)


def test_kernels_are_compared_per_step():
    kernels = [(pairs.kernel("transpose", 2 * steps, steps),) for steps in (3, 5)]
    diff = compare(report(kernels=kernels[0], steps=3), report(kernels=kernels[1], steps=5))
    assert [(row.trend, row.count) for row in diff.kernels] == [("same", Delta(2, 2, 0))]
    diff = compare(pairs.ON_DEVICE, pairs.ON_DEVICE_LATER)
    assert [(row.trend, row.cause) for row in diff.kernels] == [("grew", "transpose"), ("went", "copy")]


# --------------------------------------------------------------------------------------------- what cannot be compared


def test_without_strides_nothing_is_known_and_nothing_grew():
    for old, new in ((pairs.UNMEASURED, pairs.AFTER), (pairs.AFTER, pairs.UNMEASURED)):
        diff = compare(old, new)
        assert diff.ok
        assert {row.trend for row in diff.findings} == {"unknown"}
        assert "recorded without strides" in diff.notes[0]


def test_times_of_one_side_only():
    diff = compare(report([finding(paid=cost(2, 1))]), report([finding(paid=cost(2, 1, 3))]))
    assert diff.findings[0].trend == "same"
    assert diff.findings[0].cost.duration_ns == Delta(None, 3e6, None)


def test_copies_of_unknown_size_are_counted_and_their_bytes_are_not_zero():
    old, new = (report([finding(paid=Cost(copies, None))], bytes_moved=None) for copies in (2, 3))
    assert compare(old, old).ok
    diff = compare(old, new)
    assert (diff.worse, diff.findings[0].trend) == (("copies",), "grew")
    assert diff.totals.cost.bytes_moved == Delta(None, None, None)
    assert diff.notes[0] == "OLD has copies whose bytes are not known: bytes are not compared in all."


def test_findings_that_a_report_left_out_are_not_new():
    selected = msgspec.structs.replace(pairs.BEFORE, findings=(pairs.INPUT,))
    reshape = msgspec.structs.replace(pairs.BEFORE, findings=(*pairs.BEFORE.findings, pairs.RESHAPE))
    trends = {row.code: row.trend for row in compare(selected, reshape).findings if row.trend != "same"}
    assert trends == {"SW101": "appeared", "SW103": "unknown"}
    assert (
        "OLD does not list all of its findings: which of them are new cannot be told."
        in compare(selected, reshape).notes
    )


def test_selected_findings_are_all_that_is_judged():
    assert compare(pairs.BEFORE, pairs.AFTER, select=["sw103"]).totals.cost.copies == Delta(0, 1, 1)
    diff = compare(pairs.AFTER, pairs.BEFORE, ignore="SW103")
    assert diff.totals.cost.copies == Delta(15, 14, -1)
    assert {row.code for row in diff.findings} == {"SW101"}
    assert diff.notes == ("Only some findings are compared, and the figures are theirs: not SW103.",)


def test_notes_of_one_side_and_other_machines():
    notes = compare(
        report(notes=("both", "old only")),
        report(notes=("both", "new only"), environment={"torch": "2.6.0", "device": "cpu", "threads": "2"}),
    ).notes
    assert notes == ("Recorded differently: torch 2.13.0 → 2.6.0.", "OLD: old only", "NEW: new only")


def test_small_differences_fold_unless_they_make_it_worse():
    old, new = pairs.PAIRS["small"]
    assert [row.site.line for row in compare(old, new, min_share=0.001).folded] == [90]
    assert compare(old, new, min_share=0.001).listed == ()
    assert [row.site.line for row in compare(new, old, min_share=0.001).listed] == [90]
    assert [row.site.line for row in compare(old, new).listed] == [90]
