"""A report that was saved reads back as it was; what is none is told from one, or refused in one line."""

import gzip
import io
import json

import pytest

from stridewise.errors import InputError
from stridewise.report import render, saved
from stridewise.report.json import dumps
from stridewise.results.lint import LintRun

from . import pairs


def text_of(report, **options):
    out = io.StringIO()
    render(report, "json", out, **options)
    return out.getvalue()


def changed(**fields):
    return json.dumps(json.loads(text_of(pairs.BEFORE)) | fields)


@pytest.mark.parametrize(
    "report",
    [pairs.BEFORE, pairs.UNMEASURED, pairs.ON_DEVICE, pairs.HOSTILE],
    ids=["before", "unmeasured", "device", "hostile"],
)
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())], ids=["plain", "gzip"])
def test_round_trip(report, pack, tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(pack(text_of(report, tables=("copies", "modules", "paths"))))
    assert saved.load(path) == report


def test_lists_that_were_left_out_are_empty(tmp_path):
    assert saved.read(text_of(pairs.ON_DEVICE).encode(), "a").copies == ()


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '{"schemaVersion": 1}', "", "{", "\x1f\x8b", '{"a": 1}'])
def test_what_is_no_report(text, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="latin-1")
    assert saved.load(path) is None


def test_a_report_whose_keys_were_sorted(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(json.loads(text_of(pairs.BEFORE)), sort_keys=True), encoding="utf-8-sig")
    assert saved.load(path) == pairs.BEFORE


@pytest.mark.parametrize(
    "text",
    [
        changed(schema_version=2),
        changed(schema_version=None),
        changed(schema_version={"a": ["b"] * 1000}),
        changed(findings=3),
        changed(findings=[{}]),
        changed(totals=json.loads(changed())["totals"] | {"steps": 0}),
        changed(totals=json.loads(changed())["totals"] | {"steps": 10**30}),
        changed(totals=json.loads(changed())["totals"] | {"copies": -1}),
        changed(totals=json.loads(changed())["totals"] | {"copies": float("nan")}),
        changed(totals=json.loads(changed())["totals"] | {"copies": "\x1b[31m"}),
        changed(totals=json.loads(changed())["totals"] | {"copies": 1e300}),
        changed(notes="x\ny"),
        changed()[:-30],
        '{"findings": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"findings": [], "extra": ' + "[" * 100_000 + "]" * 100_000 + ', "schema_version": 1}',
        '{"schema_version": 1}',
        '{"findings": "\ud800"}',
    ],
    ids=[
        "newer",
        "no version",
        "strange version",
        "type",
        "fields",
        "no steps",
        "huge steps",
        "negative",
        "nan",
        "hostile",
        "huge",
        "notes",
        "cut",
        "deep",
        "deep extra",
        "empty",
        "surrogate",
    ],
)
def test_hostile_reports_are_refused_in_one_line(text):
    with pytest.raises(InputError) as caught:
        saved.read(text.encode("utf-8", "surrogatepass"), "a.json")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400
    assert str(caught.value).startswith("a.json is ")
    assert str(caught.value).isprintable()


def test_a_newer_schema_is_named():
    with pytest.raises(InputError, match=r"^a\.json is a report of schema version 2, and this stridewise reads 1"):
        saved.read(changed(schema_version=2).encode(), "a.json")


def test_what_lint_found_is_no_report_of_a_recording():
    with pytest.raises(InputError, match=r"^a\.json is what `stridewise lint` found, not a report on a recording\.$"):
        saved.read(dumps(LintRun((), files=3, lines=10)).encode(), "a.json")
