"""What SARIF 2.1.0 says of the objects that are written: their properties, and of what kind each is.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html
"""

from typing import Any

LEVELS = {"none", "note", "warning", "error"}

# A name of a property that must be there ends in `!`. A list holds objects of its one member's kind, each but once.
KINDS: dict[str, dict[str, Any]] = {
    "log": {"$schema": str, "version!": {"2.1.0"}, "runs!": ["run"]},
    "run": {"tool!": "tool", "columnKind": {"unicodeCodePoints"}, "results": ["result"], "invocations": ["invocation"]},
    "tool": {"driver!": "toolComponent"},
    "toolComponent": {"name!": str, "version": str, "semanticVersion": str, "rules": ["reportingDescriptor"]},
    "reportingDescriptor": {
        "id!": str,
        "name": str,
        "shortDescription": "text",
        "help": "text",
        "defaultConfiguration": "reportingConfiguration",
    },
    "reportingConfiguration": {"level": LEVELS},
    "text": {"text!": str},
    "invocation": {"executionSuccessful!": bool, "toolExecutionNotifications": ["notification"]},
    "notification": {"message!": "text", "level": LEVELS, "locations": ["location"]},
    "result": {
        "ruleId": str,
        "ruleIndex": 0,
        "level": LEVELS,
        "message!": "text",
        "locations": ["location"],
        "relatedLocations": ["location"],
        "partialFingerprints": {"stridewise/v1!": str},
        "occurrenceCount": 1,
        "fixes": ["fix"],
        "properties": dict,
    },
    "location": {"id": 0, "message": "text", "physicalLocation": "place", "logicalLocations": ["logicalLocation"]},
    "place": {"artifactLocation!": "artifactLocation", "region": "region"},
    "artifactLocation": {"uri!": str, "uriBaseId": str},
    "logicalLocation": {"fullyQualifiedName": str, "kind": {"function", "module"}},
    "region": {"startLine!": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
    "fix": {"description": "text", "artifactChanges!": ["artifactChange"]},
    "artifactChange": {"artifactLocation!": "artifactLocation", "replacements!": ["replacement"]},
    "replacement": {"deletedRegion!": "region", "insertedContent": "text"},
}


def check(value: Any, kind: Any = "log", at: str = "log") -> None:
    """Fail for whatever is not as the specification has it. A number stands for integers from it on."""
    if isinstance(kind, str):
        kind = KINDS[kind]
    if isinstance(kind, list):
        assert isinstance(value, list), at
        assert all(value.count(member) == 1 for member in value) or kind == ["result"], at
        for number, member in enumerate(value):
            check(member, kind[0], f"{at}[{number}]")
    elif isinstance(kind, dict):
        assert isinstance(value, dict), at
        known = {name.removesuffix("!"): wanted for name, wanted in kind.items()}
        assert value.keys() <= known.keys(), at
        assert {name.removesuffix("!") for name in kind if name.endswith("!")} <= value.keys(), at
        for name, member in value.items():
            check(member, known[name], f"{at}.{name}")
    elif isinstance(kind, set):
        assert value in kind, at
    elif isinstance(kind, int):
        assert isinstance(value, int), at
        assert value >= kind, at
    else:
        assert isinstance(value, kind), at


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
