"""The pages on hazards: their tables are made from the rules and the tests, and what they name is there."""

import importlib.util
import re
from pathlib import Path

import pytest

from stridewise.checks.rules import all_rules
from stridewise.report.codes import all_docs

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str):
    spec = importlib.util.spec_from_file_location(f"{name}_of_docs", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_rules_are_those_of_the_code():
    for page, text in script("checks").pages().items():
        assert text == page.read_text(encoding="utf-8"), "python docs/checks.py"


def test_the_table_of_reports_is_that_of_the_tests():
    assert script("hazards").page() == (DOCS / "reference" / "hazards.md").read_text(encoding="utf-8"), (
        "python docs/hazards.py"
    )


def test_each_report_is_reproduced_or_said_not_to_be():
    table = (DOCS / "reference" / "hazards.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in table if re.match(r"\| \d+ \|", line)]
    assert len(rows) > 50
    assert [row[0] for row in rows if not row[4].strip(" |")] == []


@pytest.mark.parametrize("test", script("hazards").reproduced(), ids=lambda test: test.name)
def test_marks_name_rows_and_codes_that_exist(test):
    known = {line.split("\t")[0] for line in (DOCS / "hazards.tsv").read_text(encoding="utf-8").splitlines()}
    beyond = {str(row) for row in range(51, 66)} | {"25", "36", "88"}
    assert {str(row) for row in test.rows} <= known | beyond
    assert test.code is None or test.code in {doc.code for doc in all_docs()}


def test_no_code_has_two_rules():
    codes = [rule.code for rule in all_rules()]
    assert len(set(codes)) == len(codes)
