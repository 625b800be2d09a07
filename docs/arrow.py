"""Writes the columns of `to_arrow()` into docs/reference/arrow.md: `python docs/arrow.py`. A test holds them."""

from collections.abc import Sequence
from pathlib import Path

from stridewise.recording.arrow import CALLS, COPIES, OPS, Field

PAGE = Path(__file__).parent / "reference" / "arrow.md"
BEGIN = "<!-- from the tables themselves: python docs/arrow.py -->"
END = "<!-- end of the tables -->"


def listed(name: str, fields: Sequence[Field]) -> str:
    """A table's columns."""
    rows = [f"| `{row.name}` | `{row.type}` | {'yes' if row.nullable else 'no'} | {row.says} |\n" for row in fields]
    return f"## {name}\n\n| column | type | may be null | what it is |\n|---|---|---|---|\n{''.join(rows)}\n"


def page() -> str:
    """The page with these columns in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    tables = "".join(listed(name, fields) for name, fields in (("copies", COPIES), ("calls", CALLS), ("ops", OPS)))
    return f"{before}{BEGIN}\n\n{tables}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
