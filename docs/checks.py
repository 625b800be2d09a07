"""Writes the rules on live objects into docs/reference/check.md: `python docs/checks.py`. A test holds them equal."""

from pathlib import Path

from stridewise.checks.rules import all_rules

PAGE = Path(__file__).parent / "reference" / "check.md"
BEGIN = "<!-- from the rules themselves: python docs/checks.py -->"
END = "<!-- end of the rules -->"


def table() -> str:
    """A row for each rule."""
    rows = [f"| {rule.code} | {rule.title} | {rule.summary} | {rule.severity} |\n" for rule in all_rules()]
    return "| code | name | what it says | severity |\n|---|---|---|---|\n" + "".join(rows)


def page() -> str:
    """The page with the table in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
