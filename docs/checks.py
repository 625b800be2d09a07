"""Writes the rules on live objects and compiled code into the docs: `python docs/checks.py`; a test compares."""

from collections.abc import Iterable
from pathlib import Path

from stridewise.checks.rule import Rule
from stridewise.checks.rules import all_rules as checks
from stridewise.compiled.rules import all_rules as compiled

REFERENCE = Path(__file__).parent / "reference"
PAGES = {REFERENCE / "check.md": checks, REFERENCE / "compiled.md": compiled}
BEGIN = "<!-- from the rules themselves: python docs/checks.py -->"
END = "<!-- end of the rules -->"


def table(rules: Iterable[Rule]) -> str:
    """A row for each rule."""
    rows = [f"| {rule.code} | {rule.title} | {rule.summary} | {rule.severity} |\n" for rule in rules]
    return "| code | name | what it says | severity (usual) |\n|---|---|---|---|\n" + "".join(rows)


def pages() -> dict[Path, str]:
    """The pages with the tables in them."""
    found = {}
    for page, rules in PAGES.items():
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        found[page] = f"{before}{BEGIN}\n\n{table(rules())}\n{END}{rest.partition(END)[2]}"
    return found


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
