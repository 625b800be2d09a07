"""The examples of rules on compiled code that a check of an artefact reports."""

import types
import warnings

import pytest

from stridewise.checks.artefacts.check import check_export
from stridewise.compiled.rules import all_rules

RULES = [rule for rule in all_rules() if rule.way == "artefact"]
FIRES = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in RULES for at, text in enumerate(rule.fires)]
QUIET = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in RULES for at, text in enumerate(rule.quiet)]


def codes(text):
    example = types.ModuleType("example")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export, in torch itself
        exec(compile(text, "example.py", "exec"), example.__dict__)
        subject = example.subject()
    result = check_export(subject.pop("program"), *subject.pop("args", ()), **subject)
    return {finding.code for finding in result.findings}


@pytest.mark.parametrize(("rule", "text"), FIRES)
def test_it_fires(rule, text):
    assert codes(text) == {rule.code}


@pytest.mark.parametrize(("rule", "text"), QUIET)
def test_it_is_quiet(rule, text):
    assert codes(text) == set()
