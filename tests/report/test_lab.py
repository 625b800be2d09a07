"""What the lab shows: claims with the right statement, what was measured, and machines side by side."""

import io
import json

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from stridewise.lab.beside import side_by_side
from stridewise.report import lab, lab_comparison
from stridewise.report.lab_words import headline
from stridewise.results.lab import Ratio

from . import labs

RENDERED = {
    **{
        (name, details): (lab.render, found, {"details": details})
        for name, found in labs.ALL.items()
        for details in (True, False)
    },
    **{(f"beside {name}", None): (lab_comparison.render, found, {}) for name, found in labs.BESIDE.items()},
}


def rendered(key, **options):
    render, found, given = RENDERED[key]
    out = io.StringIO()
    render(found, out, **given, **options)
    return out.getvalue()


@pytest.mark.parametrize("key", list(RENDERED), ids=str)
def test_text(key, snapshot):
    assert rendered(key) == snapshot


@pytest.mark.parametrize("width", [100, 70])
@pytest.mark.parametrize("key", list(RENDERED), ids=str)
def test_lines_fit_and_are_plain_text(key, width):
    for line in rendered(key, width=width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


def test_few_experiments_are_told_whole_unasked():
    def shown(found):
        out = io.StringIO()
        lab.render(found, out)
        return out.getvalue()

    assert "at least 2x slower" in shown(labs.ALL["few"])
    four = lab.Lab(
        *[getattr(labs.WHOLE, field) for field in ("machine", "device", "quick", "date", "seconds")], (labs.BMM,) * 4
    )
    assert "at least 2x slower" not in shown(four)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            labs.WHOLE,
            "Of 3 claims that could be tested, 1 holds, 1 in part and 1 does not; 1 could not be tested here.",
        ),
        (labs.EMPTY, "No claim was tested."),
        (labs.ON_GPU, "Of 1 claim that could be tested, 1 holds and 0 do not; 2 could not be tested here."),
    ],
)
def test_headline(found, said):
    assert headline(found) == said


def test_side_by_side_has_every_claim_and_arm_once():
    found = labs.BESIDE["disagreeing"]
    assert [row.number for row in found.claims] == ["C3", "C6", "C19", "C57", "C58"]
    assert found.claims[0].verdicts == ("holds in part", None, None)
    assert [row.number for row in found.disputed] == ["C58"]
    assert [(row.arm, row.ratios) for row in found.arms][:2] == [
        ("bmm(view, k)", (Ratio(0.96, 0.94, 0.99), Ratio(0.96, 0.94, 0.99), None)),
        ("bmm(view.contiguous(), k)", (Ratio(1.22, 1.14, 1.31), None, None)),
    ]


def test_ratios_differ_where_sizes_are_equal_and_intervals_apart():
    assert [row.differs for row in labs.BESIDE["unlike"].arms] == [True, True, True]
    other = replace(labs.SLOW.experiments[0], sizes={"batch": 8})
    apart = side_by_side({"large": labs.WHOLE, "small": replace(labs.SLOW, experiments=(other,))})
    assert [row.differs for row in apart.arms] == [False, False, False]


def test_json_reads_back(tmp_path):
    import stridewise

    file = tmp_path / "run.json"
    out = io.StringIO()
    lab.render(labs.WHOLE, out, format="json")
    file.write_text(out.getvalue())
    assert json.loads(out.getvalue())["experiments"][1]["name"] == "bmm-transposed"
    assert stridewise.read_lab(file).experiments == labs.WHOLE.experiments
    assert stridewise.compare_labs([file]).claims == labs.BESIDE["one"].claims
