"""Writes the table of public reports into docs/reference/hazards.md: `python docs/hazards.py`. A test holds it."""

import ast
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "hazards.md"
ROWS = ROOT / "docs" / "hazards.tsv"
TESTS = ROOT / "tests" / "hazards"
BEGIN = "<!-- from the tests themselves: python docs/hazards.py -->"
END = "<!-- end of the table -->"


@dataclass(frozen=True)
class Reproduced:
    """A test that makes the fault of some rows happen."""

    rows: tuple[int, ...]
    code: str | None
    file: str
    name: str

    @property
    def said(self) -> str:
        """Its name as words."""
        return self.name.removeprefix("test_").replace("_", " ")


def reproduced() -> list[Reproduced]:
    """Every test with a `hazard` mark, read from the source of the tests."""
    return [found for path in sorted(TESTS.glob("test_*.py")) for found in _of_file(path)]


def _of_file(path: Path) -> Iterator[Reproduced]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "hazard":
                rows = tuple(ast.literal_eval(row) for row in mark.args)
                (code,) = (ast.literal_eval(word.value) for word in mark.keywords if word.arg == "code")
                yield Reproduced(rows, code, path.relative_to(ROOT).as_posix(), node.name)


def table() -> str:
    """A row for each public report: what goes wrong, the code that names it, and the tests that make it happen."""
    tests = reproduced()
    lines = ["| row | reported | what goes wrong | named | tests, or what is not covered |", "|---|---|---|---|---|"]
    with ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            mine = [test for test in tests if int(row["row"]) in test.rows]
            codes = ", ".join(sorted({test.code for test in mine if test.code}))
            names = ", ".join(f"[{test.said}](../../{test.file})" for test in mine)
            where = "; ".join(filter(None, (names, row["elsewhere"])))
            reports = ", ".join(map(_link, row["reported"].split())) if "#" in row["reported"] else row["reported"]
            healed = "right on the CPU" if mine and not codes else "–"
            lines.append(f"| {row['row']} | {reports} | {row['what goes wrong']} | {codes or healed} | {where} |")
    return "\n".join(lines) + "\n"


def _link(report: str) -> str:
    repository, number = report.split("#")
    return f"[{report}](https://github.com/{re.sub('^pytorch$', 'pytorch/pytorch', repository)}/issues/{number})"


def page() -> str:
    """The page with the table in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
