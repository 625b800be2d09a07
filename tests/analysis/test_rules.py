"""Every rule fires on its own examples and keeps quiet on the others."""

import re

import pytest
import torch

import stridewise
from stridewise.analysis.rules import Rule, all_rules
from stridewise.results import Report


def run(source: str) -> Report:
    """Record one step of an example: `program()` as its source defines it."""
    torch.manual_seed(0)
    names: dict[str, object] = {"torch": torch}
    exec(compile(source, "example.py", "exec"), names)
    program = names["program"]
    assert callable(program)
    program()
    with stridewise.record(library_copies=bool(names.get("LIBRARY_COPIES"))) as recording:
        program()
        recording.step()
    return stridewise.analyze(recording)


def examples(kind: str) -> list[object]:
    return [
        pytest.param(rule, source, id=f"{rule.code}-{number}")
        for rule in all_rules()
        for number, source in enumerate(getattr(rule, kind))
    ]


@pytest.mark.parametrize(("rule", "source"), examples("fires"))
def test_it_fires(rule: Rule, source: str) -> None:
    report = run(source)
    assert rule.code in [finding.code for finding in report.findings]
    assert sum(finding.cost.copies for finding in report.findings) == pytest.approx(report.totals.copies)


@pytest.mark.parametrize(("rule", "source"), examples("quiet"))
def test_it_keeps_quiet(rule: Rule, source: str) -> None:
    assert rule.code not in [finding.code for finding in run(source).findings]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_it_is_documented(rule: Rule) -> None:
    assert re.fullmatch(r"SW1\d\d", rule.code)
    assert rule.summary.endswith(".")
    headings = re.findall(r"^(\w.*)$", rule.doc, flags=re.MULTILINE)
    assert headings == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert rule.fires
    assert rule.quiet


def test_the_order_of_charging() -> None:
    charged = ["SW101", "SW102", "SW105", "SW112", "SW111", "SW110", "SW103"]
    assert [rule.code for rule in all_rules() if rule.code in charged] == charged
