"""What holds of every rule on compiled code: its examples and its words."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import stridewise
from stridewise.checks.rule import Rule
from stridewise.compiled.rules import all_rules

from . import programs

COMPILED = [rule for rule in all_rules() if rule.way == "compile"]
FIRES = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in COMPILED for at, text in enumerate(rule.fires)]
QUIET = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in COMPILED for at, text in enumerate(rule.quiet)]


def example(text: str, folder: Path) -> ModuleType:
    """An example as a file of its own: the compiler reads sources."""
    name = f"example_{folder.name}"
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dynamo imports it by its name
    spec.loader.exec_module(module)
    return module


def found(text: str, folder: Path) -> set[str]:
    subject = example(text, folder).subject()
    fn, args = subject.pop("fn"), subject.pop("args")
    result = stridewise.explain_compile(fn, *args, **subject)
    assert result.graphs, result.notes
    return {finding.code for finding in result.findings}


@pytest.mark.parametrize(("rule", "text"), FIRES)
def test_it_fires(rule: Rule, text: str, tmp_path: Path) -> None:
    if rule.code == "SW504" and not programs.EXACT:
        pytest.skip("torch 2.6 takes the strides of an operator's results as they come")
    assert rule.code in found(text, tmp_path)


@pytest.mark.parametrize(("rule", "text"), QUIET)
def test_it_stays_quiet(rule: Rule, text: str, tmp_path: Path) -> None:
    assert rule.code not in found(text, tmp_path)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in all_rules()])
def test_its_words_are_complete(rule: Rule) -> None:
    sections = re.findall(r"^\S.*$", rule.doc, re.MULTILINE)
    assert sections == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert "-" in rule.title
    assert rule.fires
    assert rule.quiet
