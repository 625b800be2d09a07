"""What holds of every source rule: its examples, its words and its fixes."""

import ast
import re

import pytest

from stridewise.linter.rule import Fires, Rule
from stridewise.linter.rules import all_rules

from .texts import findings, fixed

RULES = [pytest.param(rule, id=rule.code) for rule in all_rules()]
FIRES = [pytest.param(r, example, id=f"{r.code}-{at}") for r in all_rules() for at, example in enumerate(r.fires)]
QUIET = [pytest.param(r, text, id=f"{r.code}-{at}") for r in all_rules() for at, text in enumerate(r.quiet)]


@pytest.mark.parametrize(("rule", "example"), FIRES)
def test_it_fires(rule: Rule, example: Fires) -> None:
    found = findings(example.source, rule.code)
    assert [finding.code for finding in found] == [rule.code] * example.count


@pytest.mark.parametrize(("rule", "example"), FIRES)
def test_its_fix(rule: Rule, example: Fires) -> None:
    offered = [finding for finding in findings(example.source, rule.code) if finding.edits]
    if example.fixed is None:
        assert not offered
        return
    assert fixed(example.source, rule.code) == example.fixed
    assert fixed(example.fixed, rule.code) == example.fixed  # once is enough


@pytest.mark.parametrize(("rule", "text"), QUIET)
def test_it_is_quiet(rule: Rule, text: str) -> None:
    assert findings(text, rule.code) == ()


@pytest.mark.parametrize("rule", RULES)
def test_examples_run_as_they_stand(rule: Rule) -> None:
    for text in (*(example.source for example in rule.fires), *rule.quiet):
        compile(ast.parse(text), "example.py", "exec")


@pytest.mark.parametrize("rule", RULES)
def test_it_says_what_why_and_when(rule: Rule) -> None:
    assert re.fullmatch(r"SW3\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.title)
    headings = [line for line in rule.doc.splitlines() if line and not line.startswith(" ")]
    assert headings == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert rule.fires
    assert rule.quiet


@pytest.mark.parametrize("rule", RULES)
def test_it_is_run_where_it_fires(rule: Rule) -> None:
    """Each example holds one of the words that the rule is found by."""
    for example in rule.fires:
        assert any(re.search(rf"\b{re.escape(word)}\b", example.source) for word in rule.words)


def test_codes_and_titles_are_used_once() -> None:
    assert len({rule.code for rule in all_rules()}) == len(all_rules())
    assert len({rule.title for rule in all_rules()}) == len(all_rules())


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n\ndef f(x):\n    x.flatten(  # rows\n    )[0] = 1\n",
        "import torch\n\ndef f(x):\n    (x\n     .contiguous(  # in order\n     ))[0] = 1\n",
        "import torch\n\ndef f(x):\n    x = (  # keep this\n        torch.zeros(3).contiguous()\n    )\n",
    ],
)
def test_no_fix_loses_a_comment(text: str) -> None:
    found = findings(text, *(rule.code for rule in all_rules() if rule.default))
    edits = [edit for finding in found for edit in finding.edits]
    assert found
    assert all("#" in edit.replacement or "#" not in text[slice(*edit.span)] for edit in edits)
