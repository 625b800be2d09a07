"""Helpers of the lint tests: rules over a text, fixes made in it, and the text run with torch."""

from pathlib import Path
from typing import Any

from stridewise.findings import Edit, Finding
from stridewise.linter.engine import check_source
from stridewise.linter.rule import Rule
from stridewise.linter.rules import all_rules
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile


def rule_of(code: str) -> Rule:
    return next(rule for rule in all_rules() if rule.code == code)


def source_of(text: str) -> SourceFile:
    return SourceFile(Path("example.py"), "example.py", text.encode())


def findings(text: str, *codes: str) -> tuple[Finding, ...]:
    """What the rules with these codes (all of them, without any) find in a text, off by default or not."""
    return check_source(source_of(text), [rule for rule in all_rules() if not codes or rule.code in codes])


def fixed(text: str, code: str) -> str:
    """The text with all fixes of a rule, those that are for display only included."""
    edits: list[Edit] = []
    for finding in findings(text, code):
        if not editing.overlap(edits, finding.edits):
            edits += finding.edits
    source = source_of(text)
    return editing.apply(source.content, source.encoding, edits).decode()


def run(text: str) -> dict[str, Any]:
    """The names that a text defines when it is run; call what it defines to run that."""
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, "example.py", "exec"), namespace)
    return namespace
