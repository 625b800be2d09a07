"""Runs the source rules over one file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stridewise.findings import NOT_MEASURED, Finding, fingerprint
from stridewise.linter.module import Module
from stridewise.linter.rule import Problem, Rule
from stridewise.linter.soundness import loses_comment, sound
from stridewise.source.file import SourceFile

if TYPE_CHECKING:
    from stridewise.linter.seen import SeenFile


def check_text(text: str, rules: Sequence[Rule], name: str = "example.py") -> tuple[Finding, ...]:
    """The findings in a text, for tests and editors. Raises InputError if it is no Python."""
    return check_source(SourceFile(Path(name), name, text.encode()), rules)


def check_source(source: SourceFile, rules: Sequence[Rule], seen: "SeenFile | None" = None) -> tuple[Finding, ...]:
    """The findings in a file, in the order of the source; comments that suppress some are not looked at.

    With what a recording saw of the file, values are known better, and findings carry what their calls cost.
    """
    if b"torch" not in source.content and seen is None:
        return ()
    module = Module(source, frozenset().union(*(rule.words for rule in rules)), seen)
    found = [(rule, problem) for rule in rules for problem in rule.check(module)]
    found.sort(key=lambda each: (source.span(each[1].node), each[0].code))
    findings = [_finding(module, rule, problem) for rule, problem in found]
    return tuple(numbered(_with_sound_fixes(source, findings)))


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
        cost=NOT_MEASURED if module.seen is None else module.seen.cost(problem.node),
        evidence=problem.evidence,
        advice=problem.advice,
        edits=problem.edits,
    )


def _with_sound_fixes(source: SourceFile, findings: Sequence[Finding]) -> Iterable[Finding]:
    """Findings, without the edits of those that would change more than they name or lose a comment: no fix then."""
    fixes = [() if loses_comment(source, finding.edits) else finding.edits for finding in findings]
    for finding, edits, is_sound in zip(findings, fixes, sound(source, fixes), strict=True):
        yield msgspec.structs.replace(finding, edits=edits if is_sound else ())


def numbered(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Findings with fingerprints; equal ones of one function differ by their number in it."""
    seen: Counter[str] = Counter()
    for finding in findings:
        print_ = fingerprint(finding.code, finding.site)
        number = seen[print_]
        seen[print_] += 1
        details = (str(number),) if number else ()
        yield msgspec.structs.replace(finding, fingerprint=fingerprint(finding.code, finding.site, *details))
