"""Writes the source rules into docs/reference/lint.md: `python docs/rules.py`. A test holds that they are those."""

from collections.abc import Sequence
from pathlib import Path

from stridewise.linter.engine import check_text
from stridewise.linter.rule import Rule
from stridewise.linter.rules import all_rules

PAGE = Path(__file__).parent / "reference" / "lint.md"
BEGIN = "<!-- from the rules themselves: python docs/rules.py -->"
END = "<!-- end of the rules -->"
ORDER = ("safe", "unsafe", "display")


def table(rules: Sequence[Rule], default: bool) -> str:
    """A row for each rule that is on, or off, unless somebody says otherwise."""
    rows = [
        f"| {rule.code} | {rule.title} | {rule.summary} | {rule.severity} | {fixes(rule)} |\n"
        for rule in rules
        if rule.default is default
    ]
    return "| code | name | what it says | severity (usual) | fix |\n|---|---|---|---|---|\n" + "".join(rows)


def fixes(rule: Rule) -> str:
    """The safeties of the fixes that a rule makes in its examples."""
    found = [finding for example in rule.fires for finding in check_text(example.source, [rule])]
    safeties = {edit.safety for finding in found for edit in finding.edits}
    return ", ".join(safety for safety in ORDER if safety in safeties) or "–"


def page(rules: Sequence[Rule]) -> str:
    """The page with these rules in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    listed = f"On by default:\n\n{table(rules, True)}\nOff by default:\n\n{table(rules, False)}"
    return f"{before}{BEGIN}\n\n{listed}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(all_rules()), encoding="utf-8")
