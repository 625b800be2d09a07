"""The page on `lint` says what the code does: rules, options and fields."""

import importlib.util
import re
from pathlib import Path

import typer

from stridewise.cli.app import app
from stridewise.cli.options import Format
from stridewise.linter.rules import all_docs, all_rules
from stridewise.results.lint import LintRun, Mended, Refused, Unread

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "lint.md").read_text(encoding="utf-8")


def test_rules_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("rules_of_docs", DOCS / "rules.py")
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    assert rules.page(all_rules()) == TEXT, "python docs/rules.py"
    assert all(doc.code in TEXT for doc in all_docs())


def test_every_option_is_told():
    command = typer.main.get_command(app).commands["lint"]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("--")}
    told = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert options - {"--respect-gitignore"} <= told


def test_every_format_is_told():
    *others, last = (f"`{name}`" for name in Format)
    assert f"{', '.join(others)} or {last}" in TEXT


def test_every_field_of_the_json_is_told():
    told = set(re.findall(r"`(\w+)`", TEXT.partition("## As JSON")[2]))
    for struct in (LintRun, Unread, Mended, Refused):
        assert set(struct.__struct_fields__) <= told, struct
