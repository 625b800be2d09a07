"""The JSON form decodes into the report that it was made from."""

import io
import json

import msgspec
import pytest

from stridewise.findings import Site
from stridewise.report import render
from stridewise.results import Report

from . import samples


def rendered(report, **options):
    out = io.StringIO()
    render(report, "json", out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", ["RICH", "HEALTHY", "UNMEASURED", "HOSTILE", "LONG", "EVERYTHING"])
def test_round_trip(name):
    report = getattr(samples, name)
    text = rendered(report, tables=("copies", "modules", "paths"))
    assert msgspec.json.decode(text, type=Report) == report
    assert text == rendered(report, tables=("copies", "modules", "paths"))


def test_form():
    text = rendered(samples.EVERYTHING, tables=("copies", "modules", "paths"))
    assert text.endswith("}\n")
    assert text.splitlines()[1].startswith('  "findings": [')
    assert list(json.loads(text)) == [
        "findings",
        "totals",
        "folded",
        "copies",
        "kernels",
        "modules",
        "notes",
        "environment",
        "rank",
        "streams",
        "paths",
        "left_out",
        "schema_version",
    ]


def test_lists_that_were_not_asked_for_are_left_out():
    assert not {"copies", "modules", "paths"} & set(json.loads(rendered(samples.EVERYTHING)))
    assert "modules" not in json.loads(rendered(samples.EVERYTHING, tables=("copies",)))
    assert "copies" not in json.loads(rendered(samples.EVERYTHING, tables=("modules",)))


def test_the_text_is_ascii_without_control_characters():
    text = rendered(samples.HOSTILE, tables=("copies", "modules", "paths"))
    assert text.isascii()
    assert text.replace("\n", "").isprintable()


def test_file_names_that_are_not_utf_8():
    report = samples.report([samples.finding(site=Site("caf\udce9.py", 1))])
    assert json.loads(rendered(report))["findings"][0]["site"]["file"] == "caf?.py"


def test_figures_that_are_not_numbers_are_null():
    assert json.loads(rendered(samples.report(share=float("nan"))))["totals"]["share"] is None
