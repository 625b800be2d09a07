"""Test reports as CI systems read them: the counts are true, and whatever programs are called, it is XML."""

import io
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.diff import compare
from stridewise.report import diff, fleet, junit, lint, render, repair
from stridewise.results import Report
from stridewise.results.fleet import Fleet
from stridewise.results.repair import Repair

from . import fleets, lints, pairs, repairs, samples

# What the schema that Jenkins checks (jenkins-junit.xsd of its xUnit plugin) lets stand where.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "time"},
    "testcase": {"name", "classname", "file", "line", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "system-out"},
}


def parsed(text):
    assert text.isascii()
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.keys()) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if element.tag in ("testsuites", "testsuite"):
            counted = {"tests": "testcase", "failures": "failure", "errors": "error"}
            assert {key: len([*element.iter(tag)]) for key, tag in counted.items()} == {
                key: int(element.attrib[key]) for key in counted
            }
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names))
    assert all(classname and name for classname, name in names)
    return root


def linted(run):
    out = io.StringIO()
    lint.render(run, out, format="junit", read=lints.read)
    return out.getvalue()


def named(module, kind):
    return [value for value in vars(module).values() if isinstance(value, kind)]


@pytest.mark.parametrize("run", lints.ALL.values(), ids=lints.ALL)
def test_lint(run):
    root = parsed(linted(run))
    failures = sum(finding.severity != "note" for finding in run.findings)
    assert (root.get("failures"), root.get("errors")) == (str(failures), str(len(run.unread)))
    assert (root.get("failures"), root.get("errors")) == ("0", "0") or not run.ok


def test_what_it_says(snapshot):
    assert linted(lints.SAFETIES) == snapshot
    assert linted(lints.UNREAD) == snapshot


def test_a_clean_run_has_one_case_that_passes():
    (case,) = parsed(linted(lints.CLEAN)).iter("testcase")
    assert [(child.tag, child.text) for child in case] == [
        ("system-out", "No layout problems in 120 files (33,204 lines).")
    ]


def test_names_stay_when_lines_move_and_equal_ones_are_numbered():
    names = [case.get("name") for case in parsed(linted(lints.run(lints.view(), lints.view()))).iter("testcase")]
    assert names[1:] == [
        "SW314 fragile-view: `x.view(x.size(0), -1)` in Encoder.forward",
        "SW314 fragile-view: `x.view(x.size(0), -1)` in Encoder.forward (2)",
    ]


@pytest.mark.parametrize("report", named(samples, Report))
def test_reports(report):
    out = io.StringIO()
    render(report, "junit", out)
    root = parsed(out.getvalue())
    assert (root.get("failures") == "0") == report.ok


@pytest.mark.parametrize("found", named(repairs, Repair))
def test_repairs(found):
    out = io.StringIO()
    repair.render(found, out, format="junit")
    parsed(out.getvalue())


@pytest.mark.parametrize("name", pairs.PAIRS)
def test_diffs(name):
    found = compare(*pairs.PAIRS[name], min_share=0.001)
    out = io.StringIO()
    diff.render(found, out, format="junit")
    assert (parsed(out.getvalue()).get("failures") == "0") == found.ok


@pytest.mark.parametrize("found", named(fleets, Fleet))
def test_fleets(found):
    out = io.StringIO()
    fleet.render(found, out, format="junit")
    assert parsed(out.getvalue()).get("errors") == str(len(found.failures))


@given(st.text(st.characters(exclude_categories=[]), max_size=40), st.sampled_from(["passed", "failure", "error"]))
def test_any_text_is_well_formed(text, outcome):
    case = junit.Case(f"s{text}", f"n{text}", outcome, text, text, text, text, 3)
    root = parsed(junit.report(f"r{text}", [case, case], text, [text]))
    assert len([*root.iter("testcase")]) == 3
    assert "##[" not in ElementTree.tostring(root, "unicode")
