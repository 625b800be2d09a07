"""Writes the schemas of JSON results, and the page that lists them: `python docs/schemas.py`. A test holds both."""

from pathlib import Path

from stridewise.report import json
from stridewise.report.schema import RESULTS, schema

REFERENCE = Path(__file__).parent / "reference"
PAGE = REFERENCE / "json.md"
BEGIN = "<!-- from the results themselves: python docs/schemas.py -->"
END = "<!-- end of the results -->"


def files() -> dict[Path, str]:
    """Each file with what it should hold."""
    found = {REFERENCE / "schema" / f"{name}.json": json.dumps(schema(name)) for name in RESULTS}
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = "".join(f"| [`{name}`](schema/{name}.json) | {written.by} |\n" for name, written in RESULTS.items())
    table = f"| schema | written by |\n|---|---|\n{rows}"
    return {**found, PAGE: f"{before}{BEGIN}\n\n{table}\n{END}{rest.partition(END)[2]}"}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
