"""The JSON of every result follows its schema, which is made from the result itself and kept in the docs."""

import copy
import importlib.util
import io
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from stridewise import api
from stridewise.analysis.diff import compare
from stridewise.report import Table, checks, compiled, diff, doctor, fleet, lab, lab_comparison, lint, render, repair
from stridewise.report.json import dumps
from stridewise.report.schema import RESULTS, schema
from stridewise.results import Repair

from . import (
    checked,
    fleets,
    labs,
    lints,
    pairs,
    repairs,
    samples,
    test_artefacts,
    test_autocast,
    test_compiled,
    test_paths,
)
from .test_doctor import DOCTORS

DOCS = Path(__file__).parents[2] / "docs"


def written(renderer, result, **options):
    out = io.StringIO()
    renderer(result, out, format="json", **options)
    return out.getvalue()


def reports():
    made = {name: value for name, value in vars(samples).items() if isinstance(value, samples.Report)}
    made |= {f"pairs.{name}": value for name, value in vars(pairs).items() if isinstance(value, samples.Report)}
    made |= {f"autocast.{name}": test_autocast.report(name) for name in test_autocast.USES}
    made["paths"] = samples.report(paths=test_paths.CPU + test_paths.DEVICE)
    made["compiled"] = replace(samples.RICH, compiled=test_compiled.result())
    made["not numbers"] = samples.report(share=float("nan"), step_ns=float("inf"))
    return made


def texts():
    for name, value in reports().items():
        for tables in ((), get_args(Table)):
            out = io.StringIO()
            render(value, "json", out, tables=tables)
            yield "report", f"{name} with {len(tables)} tables", out.getvalue()
    for name, value in lints.ALL.items():
        yield "lint", name, written(lint.render, value)
        yield "lint-statistics", name, written(lint.render, value, statistics=True)
    for name, value in vars(repairs).items():
        if isinstance(value, Repair):
            yield "repair", name, written(repair.render, value)
    for name, (old, new, *_) in pairs.PAIRS.items():
        yield "diff", name, written(diff.render, compare(old, new))
    for name, value in vars(fleets).items():
        if isinstance(value, fleets.Fleet):
            yield "fleet", name, written(fleet.render, value)
    for name, value in checked.ALL.items():
        yield _kind(value), name, written(checks.render, value)
    for name, value in test_artefacts.ALL.items():
        yield "artefact", name, written(checks.render, value)
    for name, value in test_compiled.ALL.items():
        yield "compiled", name, written(compiled.render, value)
    yield "compiled", "of two processes", dumps({"rank 0": test_compiled.result(), "rank 1": test_compiled.result()})
    for name, value in DOCTORS.items():
        yield "doctor", name, written(doctor.render, value)
    for name, value in labs.ALL.items():
        yield "lab", name, written(lab.render, value)
    for name, value in labs.BESIDE.items():
        yield "lab-comparison", name, written(lab_comparison.render, value)


def _kind(value: Any) -> str:
    return next(name for name, row in RESULTS.items() if isinstance(value, row.type))


@pytest.mark.parametrize("name", list(RESULTS))
def test_what_is_rendered_follows_its_schema(name):
    validator = Draft202012Validator(schema(name))
    rows = [(what, text) for kind, what, text in texts() if kind == name]
    assert rows
    for what, text in rows:
        faults = [
            f"{what}: {fault.json_path}: {fault.message[:200]}" for fault in validator.iter_errors(json.loads(text))
        ]
        assert not faults, faults[:3]


@pytest.mark.parametrize("name", list(RESULTS))
def test_it_is_a_schema(name):
    Draft202012Validator.check_schema(schema(name))
    assert schema(name) == schema(name)


def test_all_results_of_the_api_have_one():
    types = [row.type for row in RESULTS.values()]
    shown = [getattr(api, name) for name in api.__all__]
    shown = [each for each in shown if isinstance(each, type) and hasattr(each, "to_json")]
    assert len(shown) >= 10
    assert [each for each in shown if not issubclass(each, tuple(types))] == []


def _spoiled(*changes):
    text = json.loads(next(text for kind, name, text in texts() if kind == "report" and name.startswith("RICH")))
    for path, value in changes:
        target = text
        *way, last = path
        for step in way:
            target = target[step]
        target[last] = value
    return text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("totals", "share"), "2 %"),
        (("totals", "steps"), None),
        (("findings", 0, "severity"), "fatal"),
        (("findings", 0, "site", "line"), "42"),
        (("schema_version",), 2),
        (("notes",), "none"),
    ],
)
def test_it_refuses_what_is_none(path, value):
    validator = Draft202012Validator(schema("report"))
    assert validator.is_valid(_spoiled())
    assert not validator.is_valid(_spoiled((path, value)))


@pytest.mark.parametrize(
    ("field", "required"), [("totals", True), ("findings", True), ("copies", False), ("paths", False)]
)
def test_tables_may_be_left_out_and_nothing_else(field, required):
    text = _spoiled()
    text.pop(field, None)
    assert Draft202012Validator(schema("report")).is_valid(text) is not required


def test_figures_that_were_not_measured_are_null():
    text = copy.deepcopy(_spoiled((("totals", "share"), None), (("findings", 0, "cost", "duration_ns"), None)))
    assert Draft202012Validator(schema("report")).is_valid(text)


def test_fields_are_described_by_their_docstrings():
    definitions = schema("report")["$defs"]
    assert definitions["Copy"]["properties"]["step"]["description"] == "null outside steps."
    assert definitions["Report"]["description"] == "What a recording says."
    described = [row for each in definitions.values() for row in each["properties"].values() if "description" in row]
    assert len(described) > 100


def test_those_in_the_docs_are_current():
    spec = importlib.util.spec_from_file_location("schemas_of_docs", DOCS / "schemas.py")
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    for path, text in docs.files().items():
        assert path.read_text(encoding="utf-8") == text, "python docs/schemas.py"
    assert {path.stem for path in (DOCS / "reference" / "schema").iterdir()} == set(RESULTS)
