"""The examples of SW408: those that must break a contract and those that must not."""

import subprocess
import sys

import pytest

from stridewise.checks.rule import Rule
from stridewise.checks.rules import sw408
from stridewise.errors import ContractError

RULE = Rule.from_module(sw408)


def run(text):
    scope = {"__name__": "example"}
    exec(compile(text, "<example>", "exec"), scope)
    scope["program"]()


@pytest.mark.parametrize("text", RULE.fires)
def test_it_fires(text):
    with pytest.raises(ContractError) as caught:
        run(text)
    assert caught.value.finding.code == RULE.code == "SW408"


@pytest.mark.parametrize("text", RULE.quiet)
def test_it_is_quiet(text):
    run(text)


@pytest.mark.parametrize("first", ["stridewise.checks.rules.sw408", "stridewise.checks.contracts"])
def test_either_can_be_imported_first(first):
    subprocess.run([sys.executable, "-c", f"import {first}"], check=True, timeout=60)
