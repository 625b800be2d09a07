"""What is said of models, as people read it: the first example of each rule."""

import pytest
import torch

from stridewise.checks.preflight import preflight
from stridewise.checks.rules import all_rules

CODES = ("SW206", "SW209", "SW210", "SW211", "SW212", "SW213", "SW214", "SW218", "SW221", "SW223")
EXAMPLES = [
    pytest.param(rule.code, text, id=f"{rule.code}-{number}")
    for rule in all_rules()
    if rule.code in CODES
    for number, text in enumerate(rule.fires)
]


@pytest.mark.parametrize(("code", "text"), EXAMPLES)
def test_words(code, text, snapshot):
    names = {}
    exec(compile(text, "example.py", "exec"), names)
    torch.manual_seed(0)
    found = [finding for finding in preflight(**names["subject"]()).findings if finding.code == code]
    lines = []
    for finding in found:
        lines += [f"{finding.severity}, {finding.count}: {finding.site.expression}", finding.message]
        lines += [f"  {each}" for each in finding.evidence]
        lines += [f"  Write: {finding.advice}"]
    assert "\n".join(lines) == snapshot
