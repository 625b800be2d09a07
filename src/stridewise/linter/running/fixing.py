"""Fixes made in the text of a file, in as many passes as it takes until nothing is left to fix."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from stridewise.findings import Edit, Finding, Safety
from stridewise.linter.soundness import is_sound, together
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile

Tier = Literal["safe", "unsafe"]
"""Safe fixes alone, or unsafe ones too."""
_TIERS: dict[Tier, tuple[Safety, ...]] = {"safe": ("safe",), "unsafe": ("safe", "unsafe")}
_MOST_PASSES = 10
_LAST = "SW300"
"""Removes comments for findings that are gone: when the other fixes are made it is known which these are."""


class Fixed(Struct, frozen=True):
    """What fixes make of a file."""

    before: bytes
    after: bytes
    fixes: dict[str, int]
    """How many by code."""


class Unsettled(Exception):
    """Fixes that don't come to an end. Its text says why, without a full stop."""


def is_fixable(finding: Finding, tier: Tier) -> bool:
    """Whether a finding has a fix of that tier."""
    return bool(finding.edits) and all(edit.safety in _TIERS[tier] for edit in finding.edits)


def mend(
    source: SourceFile,
    findings: Sequence[Finding],
    again: Callable[[SourceFile], Sequence[Finding]],
    tier: Tier,
) -> Fixed | None:
    """Make the fixes of findings, and of those that `again` finds afterwards; None if there are none to make.

    Fixes that overlap are made one after the other. Of each pass the tree is compared with what the edits name. Raises
    Unsettled if there is no end to it.
    """
    before, made = source, Counter[str]()
    refused: set[str] = set()
    for _ in range(_MOST_PASSES):
        wanted = [each for each in findings if is_fixable(each, tier) and each.fingerprint not in refused]
        chosen = _together(source, [each for each in wanted if each.code != _LAST], refused)
        chosen = chosen or _together(source, [each for each in wanted if each.code == _LAST], refused)
        if not chosen:
            return Fixed(before.content, source.content, dict(sorted(made.items()))) if made else None
        made.update(finding.code for finding in chosen)
        content = editing.apply(source.content, source.encoding, _edits(chosen))
        source = SourceFile(source.path, source.name, content)
        findings = again(source)
    raise Unsettled(f"its fixes come to no end in {_MOST_PASSES} passes, a defect of stridewise: please report it")


def _together(source: SourceFile, findings: Sequence[Finding], refused: set[str]) -> list[Finding]:
    """As many of the findings as can be fixed at once. Those whose fix can't be made are added to `refused`."""
    chosen = [findings[at] for at in together([finding.edits for finding in findings])]
    if is_sound(source, _edits(chosen)):
        return chosen
    kept: list[Finding] = []
    for finding in chosen:
        if is_sound(source, _edits([*kept, finding])):
            kept.append(finding)
        else:
            refused.add(finding.fingerprint)
    return kept


def _edits(findings: Iterable[Finding]) -> list[Edit]:
    return [edit for finding in findings for edit in finding.edits]
