"""Writes the kinds of edits into docs/reference/fix.md: `python docs/kinds.py`. A test holds that they are those."""

from collections.abc import Sequence
from pathlib import Path

from stridewise.repair.kinds import Kind, all_kinds

PAGE = Path(__file__).parent / "reference" / "fix.md"
BEGIN = "<!-- from the kinds themselves: python docs/kinds.py -->"
END = "<!-- end of the kinds -->"


def listed(kinds: Sequence[Kind]) -> str:
    """Each kind with its summary, and the advice that it answers."""
    return "".join(f"**`{kind.name}`**: {kind.summary}\n\n> {kind.answers}\n\n" for kind in kinds)


def page(kinds: Sequence[Kind]) -> str:
    """The page with these kinds in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{listed(kinds)}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(all_kinds()), encoding="utf-8")
