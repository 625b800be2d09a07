"""Runs the source rules over one file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from stridewise.findings import NOT_MEASURED, Edit, Finding, fingerprint
from stridewise.lint.module import Module
from stridewise.lint.rule import Problem, Rule
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile


def check_text(text: str, rules: Sequence[Rule], name: str = "example.py") -> tuple[Finding, ...]:
    """The findings in a text, for tests and editors. Raises InputError if it is no Python."""
    return check_source(SourceFile(Path(name), name, text.encode()), rules)


def check_source(source: SourceFile, rules: Sequence[Rule]) -> tuple[Finding, ...]:
    """The findings in a file, in the order of the source; comments that suppress some are not looked at."""
    if b"torch" not in source.content:
        return ()
    module = Module(source, frozenset().union(*(rule.words for rule in rules)))
    found = [(rule, problem) for rule in rules for problem in rule.check(module)]
    found.sort(key=lambda each: (source.span(each[1].node), each[0].code))
    return tuple(_numbered(_finding(module, rule, problem) for rule, problem in found))


def _finding(module: Module, rule: Rule, problem: Problem) -> Finding:
    return Finding(
        code=rule.code,
        title=rule.title,
        severity=problem.severity or rule.severity,
        message=problem.message,
        count=1,
        site=module.site(problem.node),
        origin=module.site(problem.origin) if problem.origin is not None else None,
        carriers=(),
        payers=(),
        cost=NOT_MEASURED,
        evidence=problem.evidence,
        advice=problem.advice,
        edits=_sound(module.source, problem.edits),
    )


def _sound(source: SourceFile, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The edits, unless they would change more than they name: then there is no fix."""
    try:
        if edits:
            editing.check(source, edits)
    except ValueError:
        return ()
    return edits


def _numbered(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Findings with fingerprints; equal ones of one function differ by their number in it."""
    seen: Counter[str] = Counter()
    for finding in findings:
        print_ = fingerprint(finding.code, finding.site)
        number = seen[print_]
        seen[print_] += 1
        details = (str(number),) if number else ()
        yield msgspec.structs.replace(finding, fingerprint=fingerprint(finding.code, finding.site, *details))
