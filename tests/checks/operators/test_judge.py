"""What runs came to, as verdicts and findings: one for each fault, for its simplest cause, with words that fit."""

import pytest
from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement, Case, Described, Fault, Operand, Outcome
from stridewise.checks.operators.grid import place
from stridewise.checks.operators.judge import judge, operands, tried, verdict_of
from stridewise.findings import Site

SIZES = (3, 4)
X = Operand("x", "input", SIZES, "float32", is_float=True, requires_grad=False)
Y = replace(X, name="y")
OUT = replace(X, name="out", role="out")
DESCRIBED = Described(
    op="op",
    operands=(X, Y, OUT),
    outputs=("output",),
    differentiable=True,
    random=False,
    noise=0.0,
    tolerance=1e-5,
    tolerance_words="",
    magnitudes={},
    has_fake=True,
)
PERMUTED = Arrangement("x.t()", order=(1, 0))
SLICED = Arrangement("x[:, ::2]", steps=(1, 2), after=(0, 1))
EXPANDED = Arrangement("x expanded over dimension 0", expanded=(0,))
SHIFTED = Arrangement("x, one element into its storage", offset=1)
SUM = Arrangement("expanded, as behind sum()", expanded=(-1, -2))
SITE = Site(file="op.py", line=3)
CLEAR, DARK = "RuntimeError: x must be contiguous", "ValueError: invalid argument"

WRONG = Fault("wrong values", "output", "3 of 12 elements differ", 0.5)
OUTSIDE = Fault("writes outside", "out", "4 elements behind it were written")
IDLE = Fault("does nothing", "out", "it still holds what it held before", 1.0)


def ran(*faults, aspect="values", gradient=None, sizes=None, status="ran", message=None, **arrangements):
    layouts = {name: place(given, SIZES).layout for name, given in arrangements.items()}
    case = Case(arrangements, sizes or {}, gradient, aspect)
    return Outcome(case, status, faults, message, layouts)


def found(*outcomes, **options):
    return [entry.finding for entry in judge(outcomes, DESCRIBED, SITE, **options)]


def codes(*outcomes):
    return [finding.code for finding in found(*outcomes)]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ran(WRONG, x=PERMUTED), "SW401"),
        (ran(WRONG, aspect="gradient", gradient=SUM, x=PERMUTED), "SW401"),
        (ran(OUTSIDE, WRONG, out=SLICED), "SW402"),
        (ran(replace(WRONG, reads_past=True)), "SW402"),
        (ran(WRONG, aspect="fake", x=PERMUTED), "SW403"),
        (ran(WRONG, aspect="gradient", gradient=SUM), "SW404"),
        (ran(WRONG, aspect="second order", gradient=SUM), "SW404"),
        (ran(IDLE, out=SLICED), "SW405"),
        (ran(status="crashed", message="its process was ended by SIGSEGV", x=EXPANDED), "SW406"),
        (ran(status="hung", message="no answer within 10 s", x=EXPANDED), "SW406"),
        (ran(status="raised", message=CLEAR, x=PERMUTED), "SW407"),
    ],
)
def test_codes(outcome, code):
    (finding,) = found(ran(), outcome)
    assert finding.code == code
    assert finding.site == SITE
    assert finding.evidence


def test_nothing_wrong_gives_nothing():
    assert found(ran(), ran(x=PERMUTED), ran(status="not applicable", x=SLICED)) == []


def test_one_finding_for_each_operand_and_fault_with_the_number_of_layouts():
    outcomes = [ran(WRONG, x=PERMUTED), ran(WRONG, x=SLICED), ran(WRONG, y=PERMUTED), ran(IDLE, out=SLICED)]
    assert [(finding.code, finding.count) for finding in found(*outcomes)] == [("SW401", 2), ("SW401", 1), ("SW405", 1)]
    assert len({finding.fingerprint for finding in found(*outcomes)}) == 3


def test_more_of_what_is_wrong_already_is_not_told_again():
    alone = ran(WRONG, x=PERMUTED)
    more = [
        ran(WRONG, x=PERMUTED, y=SLICED),
        ran(WRONG, aspect="gradient", gradient=SUM, x=PERMUTED),
        ran(WRONG, sizes={"x": (1, 4)}, x=PERMUTED),
    ]
    assert [finding.count for finding in found(alone, *more)] == [1]


def test_a_worse_end_is_told_unless_damage_explains_it():
    crash = ran(status="crashed", message="its process was ended by SIGSEGV", x=PERMUTED, y=SLICED)
    assert codes(ran(WRONG, x=PERMUTED), crash) == ["SW401", "SW406"]
    assert codes(ran(OUTSIDE, x=PERMUTED), crash) == ["SW402"]


def test_operands_that_fail_only_together():
    (finding,) = found(ran(x=PERMUTED), ran(y=PERMUTED), ran(WRONG, x=PERMUTED, y=PERMUTED))
    assert "where `x` and `y` are in other layouts together, though not for each alone" in finding.message


def test_the_message_tells_which_layouts_fail_and_which_are_right():
    (finding,) = found(ran(WRONG, x=SLICED), ran(WRONG, x=EXPANDED), ran(x=PERMUTED), ran(x=SHIFTED))
    assert finding.message == (
        "`op` gives wrong values for `x` with gaps and expanded, and raises no error. It is right for `x` permuted."
    )
    (finding,) = found(ran(WRONG, x=PERMUTED), ran(WRONG, x=SLICED), ran(x=SHIFTED))
    assert "whenever it is not contiguous: permuted and with gaps" in finding.message
    (finding,) = found(ran(WRONG, x=SLICED), ran(x=replace(SLICED, name="x[::2]", steps=(2, 1), after=(1, 0))))
    assert "for `x` with gaps in some ways, and" in finding.message


@pytest.mark.parametrize(
    ("outcomes", "advice"),
    [
        ([ran(WRONG, x=PERMUTED), ran(x=SLICED)], "Allocate the output with `x.new_empty(x.shape)`"),
        ([ran(WRONG, x=PERMUTED), ran(WRONG, x=SLICED)], "Call `x = x.contiguous()` before the kernel"),
        ([ran(WRONG, out=PERMUTED)], "copy that into `out`"),
        ([ran(WRONG, aspect="gradient", gradient=SUM)], "Begin the backward with `grad = grad.contiguous()`"),
        (
            [ran(status="raised", message=CLEAR, aspect="gradient", gradient=SUM)],
            "Begin the backward with `grad = grad.contiguous()`",
        ),
        ([ran(WRONG, aspect="fake", x=PERMUTED)], "`x.new_empty(x.shape)`"),
        ([ran(IDLE, out=SLICED)], "`out.copy_(dense)`"),
    ],
)
def test_advice_fits_what_fails(outcomes, advice):
    (finding,) = found(*outcomes)
    assert advice in finding.advice


def test_a_refusal_is_a_note_if_it_says_that_layout_is_the_matter():
    clear, dark = ran(status="raised", message=CLEAR, x=PERMUTED), ran(status="raised", message=DARK, x=SLICED)
    assert [finding.severity for finding in found(clear)] == ["note"]
    assert [finding.severity for finding in found(dark)] == ["warning"]
    assert [finding.severity for finding in found(clear, dark)] == ["warning", "note"]


def test_torchs_own_broken_promises_are_a_note():
    outcome = ran(WRONG, aspect="fake", x=PERMUTED)
    assert [finding.severity for finding in found(outcome)] == ["error"]
    (finding,) = found(outcome, own_fake=False)
    assert finding.severity == "note"
    assert "fake kernel" not in finding.message


def test_evidence_shows_each_kind_of_layout_first():
    sliced = [ran(WRONG, x=replace(SLICED, name=f"x[:, :{at}]", before=(0, at))) for at in range(6)]
    (finding,) = found(*sliced, ran(WRONG, x=EXPANDED))
    assert len(finding.evidence) == 4
    assert any("expanded" in line for line in finding.evidence)


def test_operands_get_the_worst_verdict_of_their_own_layouts():
    outcomes = [
        ran(x=SLICED),
        ran(WRONG, x=PERMUTED),
        ran(status="raised", message=CLEAR, x=EXPANDED),
        ran(status="raised", message=DARK, y=EXPANDED),
        ran(status="crashed", x=PERMUTED, y=PERMUTED),
        ran(status="not applicable", out=EXPANDED),
        ran(WRONG, aspect="fake", y=PERMUTED),
        ran(WRONG, aspect="gradient", gradient=SUM),
    ]
    rows = [(row.name, row.verdict, row.tried, row.failed, row.clear) for row in operands(outcomes, DESCRIBED)]
    assert rows == [
        ("x", "wrong values", 3, 2, None),
        ("y", "raises", 1, 1, False),
        ("out", "not tried", 0, 0, None),
        ("gradient", "wrong values", 1, 1, None),
    ]


def test_what_fails_for_contiguous_operands_of_some_sizes_is_no_operands_fault():
    empty = {"x": (0, 4)}
    outcomes = [
        ran(x=PERMUTED),
        ran(status="crashed", sizes=empty, message="its process was ended by SIGFPE"),
        ran(status="crashed", sizes=empty, x=PERMUTED),
    ]
    assert operands(outcomes, DESCRIBED)[0].verdict == "honours strides"
    (finding,) = found(*outcomes)
    assert "for contiguous operands without elements" in finding.message


def test_values_that_change_by_themselves_are_not_compared():
    assert verdict_of(ran(x=PERMUTED), replace(DESCRIBED, random=True)) == "not comparable"


def test_rows_of_what_was_tried():
    (plain, sliced) = tried([ran(), ran(WRONG, x=SLICED), ran(status="not applicable", y=SLICED)], DESCRIBED)
    assert (plain.layouts, plain.verdict, plain.message) == (("contiguous",), "honours strides", None)
    assert sliced.operands == ("x",)
    assert sliced.layouts == ("`x[:, ::2]`, (3, 4) with strides (8, 2)",)
    assert (sliced.what, sliced.difference) == ("output", 0.5)
