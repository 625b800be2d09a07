"""Leaves out the findings that comments of their file name: `# noqa: SW304`, `# stridewise: ignore[SW304]`.

A comment counts from the first to the last line of the finding's expression, and on the last line of its statement,
where formatters put it. `# stridewise: ignore[...]` on a line of its own counts for the statement below,
`# stridewise: skip-file` for the whole file. Without codes they leave out everything. Codes may be beginnings of codes.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from stridewise.findings import Finding
from stridewise.linter.comments.directives import Directive, Directives, directives_of, mentioned
from stridewise.linter.comments.unused import unused
from stridewise.linter.engine import numbered
from stridewise.linter.files.settings import Settings
from stridewise.linter.rules import UNUSED, all_rules
from stridewise.source.file import SourceFile

_OTHER_FAMILIES = ("SW1", "SW2", "SW4", "SW5")
"""Codes of what is found in recordings and live objects: whether they are in use can't be told from source."""


class Suppressed(Struct, frozen=True):
    """The findings of a file after its comments were heard."""

    kept: tuple[Finding, ...]
    """In the order given."""
    count: int
    """How many were left out, by comments or `per-file-ignores`."""
    unused: tuple[Finding, ...]
    """SW300: comments that leave out nothing."""


def has_comments(content: bytes) -> bool:
    """Whether a file may hold comments that `apply` reports although there are no findings in it."""
    return mentioned(content, ours=True)


def apply(source: SourceFile, findings: Sequence[Finding], settings: Settings) -> Suppressed:
    """Leave out the findings that comments in the file or its `per-file-ignores` name, and find idle comments."""
    kept = tuple(finding for finding in findings if finding.code not in settings.ignored)
    if not mentioned(source.content, ours=not kept):
        return Suppressed(kept, len(findings) - len(kept), ())
    directives = directives_of(source)
    if any(directive.kind == "skip-file" for directive in directives.found):
        return Suppressed((), len(findings), ())
    left: list[Finding] = []
    used: set[tuple[int, str]] = set()
    for finding in kept:
        heard = [at for at, directive in enumerate(directives.found) if _covers(directive, finding, directives)]
        used.update((at, finding.code) for at in heard)
        if not heard:
            left.append(finding)
    idle = _idle(source, directives, used, settings) if settings.unused else ()
    return Suppressed(tuple(left), len(findings) - len(left), idle)


def _covers(directive: Directive, finding: Finding, directives: Directives) -> bool:
    """Whether a comment leaves a finding out."""
    line, end = finding.site.line, finding.site.end_line or finding.site.line
    if directive.kind == "mistake" or line is None or end is None or not directive.names(finding.code):
        return False
    if directive.below is not None:
        return directive.below[0] <= line <= directive.below[1]
    if (finding.site.expression or "").startswith(("def ", "async def ", "class ")):
        end = line  # only its head: a comment in its body is about something else
    return line <= directive.line <= end or directive.line == directives.end(end)


def _idle(
    source: SourceFile, directives: Directives, used: Collection[tuple[int, str]], settings: Settings
) -> tuple[Finding, ...]:
    """SW300 for the comments of which something was not used."""
    if not directives.certain or UNUSED.code in settings.ignored:
        return ()
    found = []
    for at, directive in enumerate(directives.found):
        if any(
            code == UNUSED.code for each in directives.found if each.line == directive.line for code in _codes(each)
        ):
            continue
        hits = [code for number, code in used if number == at]
        unknown = [code for code in _codes(directive) if _is_unknown(code, ours=directive.kind == "ignore")]
        idle = [code for code in _codes(directive) if _is_idle(code, hits, settings)]
        bare = directive.kind == "ignore" and directive.codes is None and _is_idle("SW3", hits, settings)
        if directive.kind == "mistake" or unknown or idle or bare:
            found.append(unused(source, directive, idle, unknown))
    return tuple(numbered(found))


def _codes(directive: Directive) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for code, _ in directive.codes or ()))


def _is_unknown(code: str, *, ours: bool) -> bool:
    """Whether no rule has a code. Unless it is `ours`, one that looks otherwise may be another tool's."""
    if not (ours or code.startswith("SW")) or code.startswith(_OTHER_FAMILIES):
        return False
    return not any(known.startswith(code) for known in (UNUSED.code, *(rule.code for rule in all_rules())))


def _is_idle(code: str, hits: Collection[str], settings: Settings) -> bool:
    """Whether the rules that a code, or a beginning of codes, stands for ran and found nothing there."""
    ran = {name for name in settings.codes if name not in settings.ignored}
    meant = {rule.code for rule in all_rules() if rule.code.startswith(code)}
    if not meant or any(hit.startswith(code) for hit in hits):
        return False
    usual = meant if code in meant else {rule.code for rule in all_rules() if rule.code in meant and rule.default}
    return bool(meant & ran) and usual <= ran
