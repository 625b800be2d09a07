"""How a comparison reads: held by snapshots; and it fits, is plain in a pipe, and is inert."""

import io
import json

import msgspec
import pytest
from rich.cells import cell_len

from stridewise.analysis.diff import compare
from stridewise.report import diff as diff_report
from stridewise.results import Diff

from . import pairs

NAMES = list(pairs.PAIRS)


def compared(name, **options):
    return compare(*pairs.PAIRS[name], **{"min_share": 0.001, **options})


def rendered(diff, **options):
    out = io.StringIO()
    diff_report.render(diff, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_text(name, snapshot):
    assert rendered(compared(name)) == snapshot


@pytest.mark.parametrize("name", ["worse", "wrong", "hostile"])
def test_github(name, snapshot):
    assert rendered(compared(name), format="github") == snapshot


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [100, 80])
def test_lines_fit_and_are_plain_text(name, width):
    for line in rendered(compared(name), width=width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_all_rows(name):
    diff = compared(name)
    text = rendered(diff, format="json")
    assert msgspec.json.decode(text, type=Diff) == diff
    assert text.isascii()
    assert json.loads(text)["schema_version"] == 1
    assert json.loads(text)["ok"] is diff.ok


def test_what_is_as_before_is_one_sentence():
    assert rendered(compared("same")) == "Nothing got worse: 14 copies and 35 MB a step, as before.\n"
    assert rendered(compared("only slower")) == rendered(compared("same"))


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_says_what_ok_says(name):
    diff = compared(name)
    assert rendered(diff).startswith("Layout got worse: ") is not diff.ok


def test_growth_within_the_tolerance_is_said():
    sentence = rendered(compared("worse", tolerance=0.2)).partition("\n\n")[0]
    assert " ".join(sentence.split()) == (
        "Nothing got worse beyond the tolerance of 20 %: 2 copies more a step (14 → 16), "
        "and 6.1 MB more to move (35 MB → 41 MB)."
    )


def test_what_was_not_measured_is_not_zero():
    text = rendered(compared("old without strides"))
    assert "15 copies, 39 MB, 1.5 ms, 3.9 % in NEW, not known in OLD" in text
    assert "+16" not in text


def test_figures_that_look_alike_get_more_digits():
    old, new = (pairs.report([pairs.finding(paid=pairs.cost(1234, megabytes))]) for megabytes in (31.2, 31.200008))
    assert "(31,200,000 B → 31,200,008 B)" in rendered(compare(old, new))


def test_many_rows_are_cut_in_text_only():
    found = [pairs.finding(expression=f"f{n}(x)", line=n, fingerprint=str(n)) for n in range(1, 100)]
    diff = compare(pairs.NOTHING, pairs.report(found))
    assert rendered(diff).count("appeared") == 40
    assert "… 59 more findings: all of them in --format json" in rendered(diff)
    assert len(json.loads(rendered(diff, format="json"))["findings"]) == 99


def test_nobody_obeys_hostile_text():
    for options in ({}, {"color": True}):
        text = rendered(compared("hostile"), **options)
        assert "\x1b]" not in text
        assert "\x1b[31m[red]" not in text
        lines = [line.strip() for line in text.splitlines()]
        assert not [line for line in lines if line.startswith("::") or "##[" in line]
    lines = rendered(compared("hostile"), format="github").splitlines()
    assert all(line.startswith(("::notice ", "::warning ", "::error ")) for line in lines)
